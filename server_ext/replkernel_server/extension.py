"""The Jupyter Server extension `replkernel`: what the browser may ask about replicated kernels.

It only reads: kernels are started, stopped and run through Jupyter's own API. Every handler
authenticates and authorises.
"""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp
from traitlets import Float
from traitlets.config import Config

from replkernel_server.handlers.status import StatusHandler

PROVISIONER = "ReplkernelProvisioner"
"""The name of the provisioner's section in configuration files."""


class ReplkernelExtension(ExtensionApp):
    """Serves `/replkernel/api/…`; configured in `jupyter_replkernel_config.py`."""

    name = "replkernel"
    extension_url = "/replkernel"
    load_other_extensions = True
    description = "Status of replicated kernels over HTTP."

    status_timeout_s: Float[float, float] = Float(
        2.0,
        min=0.1,
        max=60.0,
        config=True,
        help="How many seconds a status request waits for the answers of the host agents.",
    )

    def initialize_settings(self) -> None:
        """Hand the traits' values to the handlers, and the provisioner's configuration to the kernel manager.

        Kernels are made by the server's kernel manager, which reads the server's configuration, not ours:
        without this, `c.ReplkernelProvisioner.…` in our own file would be ignored.
        """
        self.settings["replkernel_status_timeout_s"] = self.status_timeout_s
        section = Config({PROVISIONER: self.config[PROVISIONER]}) if PROVISIONER in self.config else None
        if section is not None and self.serverapp is not None:
            self.serverapp.kernel_manager.update_config(section)

    def initialize_handlers(self) -> None:
        """List the handlers."""
        self.handlers.append((r"/replkernel/api/status", StatusHandler))
