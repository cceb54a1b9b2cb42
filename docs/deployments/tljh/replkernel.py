"""The Littlest JupyterHub: put this into /opt/tljh/config/jupyterhub_config.d/."""

import os

from replkernel_server.hub import setup_replkernel

c = get_config()  # noqa: F821 - JupyterHub's
c.Spawner.environment.update({"REPLKERNEL_REPLICAS": "3"})
setup_replkernel(c, agents_token=os.environ.get("REPLKERNEL_AGENTS_TOKEN", ""))
