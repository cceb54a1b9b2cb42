"""A JupyterHub whose users are Unix users of several machines, with an agent of each user on each of them."""

import os

from replkernel_server.hub import setup_replkernel

c = get_config()  # noqa: F821 - JupyterHub's
c.JupyterHub.authenticator_class = "pam"
c.Spawner.environment = {"REPLKERNEL_HOSTS": "gpu1,gpu2,gpu3"}
setup_replkernel(
    c,
    agents_token=os.environ["REPLKERNEL_AGENTS_TOKEN"],
    agents_on=["gpu1", "gpu2", "gpu3"],
    agents_command=["ssh", "root@{host}", "systemctl", "start", "replkernel-agent@{user}"],
)
