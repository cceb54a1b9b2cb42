"""The kernel behind the proxy: its router started or found again by the provisioner, as Jupyter does it.

Law: the router is started by the proxy's process, which is nobody's child: whoever ends the front end's
descendants does not reach it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zmq.asyncio
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir

import replkernel
from replkernel.launch.kernel_record import read_record
from replkernel.router.core.wire import Signer
from replkernel.router.io.parent import LAUNCHER_RETURNS
from replkernel.settings import data_dir

GRACE = "REPLKERNEL_LAUNCHER_GRACE_S"
GRACE_S = "60"
"""So long the kernel of a closed notebook goes on before it rests, unless the settings say otherwise."""
CHANNELS = ("shell", "control", "stdin", "iopub")


class Inner:
    """One kernel, with a socket for each channel."""

    def __init__(self, kernel_id: str, env: Mapping[str, str]) -> None:
        self.kernel_id = kernel_id
        self._env = {**env, LAUNCHER_RETURNS: "1", GRACE: env.get(GRACE) or GRACE_S}
        self._manager: Any = AsyncKernelManager(kernel_name="replkernel")
        self._manager.context = zmq.asyncio.Context.instance()
        spec = KernelSpec.from_resource_dir(str(Path(replkernel.__file__).parent / "kernelspec"))
        self._manager._kernel_spec = spec
        self._manager.connection_file = os.path.join(jupyter_runtime_dir(), f"kernel-{kernel_id}.json")
        self.sockets: dict[str, Any] = {}
        self.signer = Signer(b"", "hmac-sha256")

    async def start(self) -> None:
        """Start the router, or find it again; then connect to it."""
        await self._manager.start_kernel(kernel_id=self.kernel_id, env=dict(self._env), cwd=os.getcwd())
        info = self._manager.get_connection_info()
        key = info["key"]
        self.signer = Signer(key if isinstance(key, bytes) else str(key).encode(), info["signature_scheme"])
        identity = uuid.uuid4().hex.encode()  # Who asks on stdin is asked of by the identity on shell.
        connect = {
            "shell": self._manager.connect_shell,
            "control": self._manager.connect_control,
            "stdin": self._manager.connect_stdin,
        }
        self.sockets = {channel: connect[channel](identity=identity) for channel in connect}
        self.sockets["iopub"] = self._manager.connect_iopub()

    async def lives(self) -> bool:
        """Tell whether its router does."""
        return bool(await self._manager.is_alive())

    def is_known(self) -> bool:
        """Tell whether the kernel can be found again."""
        return read_record(data_dir(self._env), self.kernel_id) is not None

    async def end(self) -> None:
        """End the kernel for good."""
        self.close()
        await self._manager.shutdown_kernel()

    def close(self) -> None:
        """Let go of the sockets; the kernel lives on."""
        for socket in self.sockets.values():
            socket.close(linger=1000)
        self.sockets = {}
