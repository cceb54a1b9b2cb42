"""The official Jupyter kernel test, on this kernel instead of ``python3``.

``range`` is not among the history operations: a stock kernel fails it too (its session numbers differ).
The official test waits for its messages by the tenth of a second, and reads until nobody has said anything
for that long; here it waits until the message comes that must.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import jupyter_kernel_test
import pytest
from jupyter_kernel_test.msgspec_v5 import validate_message

from tests.e2e.hosts.supervisor import PLACE, site_of_a_test
from tests.support.ending import end_agents
from tests.support.live import CELL_S, reply_to
from tests.support.stock import OURS, kernelspec_dir


class TestReplicatedKernel(jupyter_kernel_test.KernelTests):
    """Everything that the official test can ask of a Python kernel."""

    kernel_name = OURS
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples: ClassVar[list[dict[str, Any]]] = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples: ClassVar[list[str]] = [
        "1",
        "print('hello, world')",
        "def f(x):\n  return x*2\n\n\n",
    ]
    incomplete_code_samples: ClassVar[list[str]] = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples: ClassVar[list[str]] = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result: ClassVar[list[dict[str, str]]] = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data: ClassVar[list[dict[str, str]]] = [
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
        {
            "code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))",
            "mime": "text/latex",
        },
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls) -> None:
        """Start one kernel for all tests, in directories that are its own."""
        cls.base = Path(tempfile.mkdtemp(prefix="rkjt-", dir="/tmp"))
        cls.patch = pytest.MonkeyPatch()
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "REPLKERNEL_SOCKET_DIR"):
            directory = cls.base / name.lower()[-14:]
            directory.mkdir(mode=0o700)
            cls.patch.setenv(name, str(directory))
        cls.patch.setenv("JUPYTER_PATH", str(kernelspec_dir(cls.base / "jupyter")))
        cls.across = contextlib.ExitStack()
        if PLACE in os.environ:
            for name, value in cls.across.enter_context(site_of_a_test()).items():
                cls.patch.setenv(name, value)
        cls.patch.setattr(jupyter_kernel_test, "TIMEOUT", CELL_S)
        cls.env = dict(os.environ)
        super().setUpClass()
        # The router says itself that it is ready: an agent, its zygote and the replicas come with a cell.
        reply_to(cls.kc, cls.kc.execute("", store_history=False), CELL_S)

    @classmethod
    def tearDownClass(cls) -> None:
        """End the kernel and its agents."""
        super().tearDownClass()
        end_agents(cls.env)
        cls.across.close()
        cls.patch.undo()
        shutil.rmtree(cls.base, ignore_errors=True)

    def flush_channels(self) -> None:
        """Read what is left of earlier requests: behind it comes the answer to a last one."""
        asked = self.kc.kernel_info()
        reply_to(self.kc, asked, CELL_S)
        while True:
            message = self.kc.get_iopub_msg(timeout=CELL_S)
            validate_message(message)
            about = message["parent_header"].get("msg_id")
            if about == asked and message["content"].get("execution_state") == "idle":
                return

    def execute_helper(
        self,
        code: str,
        timeout: float = CELL_S,
        silent: bool = False,
        store_history: bool = True,
        stop_on_error: bool = True,
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell and check each of its messages, as the official test does."""
        msg_id = self.kc.execute(
            code=code, silent=silent, store_history=store_history, stop_on_error=stop_on_error
        )
        reply = self.get_non_kernel_info_reply(timeout=timeout)
        assert reply is not None
        validate_message(reply, "execute_reply", msg_id)
        busy = self.kc.get_iopub_msg(timeout=timeout)
        validate_message(busy, "status", msg_id)
        assert busy["content"]["execution_state"] == "busy"
        shown: list[dict[str, Any]] = []
        while True:
            message = self.kc.get_iopub_msg(timeout=timeout)
            validate_message(message, message["msg_type"], msg_id)
            if message["msg_type"] == "status":
                assert message["content"]["execution_state"] == "idle"
                return reply, shown
            if message["msg_type"] == "execute_input":
                assert message["content"]["code"] == code
            else:
                shown.append(message)

    def history_helper(
        self, execute_first: Any, timeout: float | None = CELL_S, **histargs: Any
    ) -> dict[str, Any]:
        """Ask for the history with a wait of ours."""
        return super().history_helper(execute_first, timeout, **histargs)
