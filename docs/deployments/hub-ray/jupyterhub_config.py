"""JupyterHub whose users share the GPUs of a Ray cluster.

REPLKERNEL_AGENTS_TOKEN and RAY_ADDRESS are in the environment of the Hub.
"""

import os

from replkernel_server.hub import setup_replkernel

c = get_config()  # noqa: F821 - JupyterHub's

# Who logs in, and how servers are started: replace both by yours.
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.admin_users = {"admin"}
c.Authenticator.allow_existing_users = True
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.default_url = "/lab"

# Where servers are reached: behind your TLS.
c.JupyterHub.bind_url = "http://127.0.0.1:8000/"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.cleanup_servers = False

# Groups are quotas: GPUs at once, GPU-hours a month, who is served first.
c.JupyterHub.load_groups = {
    "gpu-users": {
        "users": ["admin"],
        "properties": {"gpu_quota": 4, "gpu_hours_month": 100, "priority": 0},
    },
}

# Users' notebooks: three replicas on these nodes (`ray start --labels replkernel.io/host=gpu1`), one spare.
c.Spawner.environment.update(
    {
        "REPLKERNEL_REPLICAS": "3",
        "REPLKERNEL_HOSTS": "ray-gpu1,ray-gpu2,ray-gpu3,ray-gpu4",
    }
)

# The scheduler is the Hub's service `replkernel`; it belongs at the end.
setup_replkernel(
    c,
    groups=["gpu-users"],
    agents_token=os.environ["REPLKERNEL_AGENTS_TOKEN"],
    launcher="ray",
    launcher_options={"address": os.environ.get("RAY_ADDRESS", "auto")},
)
