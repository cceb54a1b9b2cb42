"""What runs on a host's machine while end-to-end tests are run across machines: it starts agents when asked.

`python -m tests.e2e.hosts.standby HOST ADDRESS FIFO`; each line of the pipe is the environment of an agent to
be started in place of the one before, as JSON, or `null` to have that one end. Law: one agent at a time.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

STOP_S = 20.0


def main() -> None:
    """Serve until the machine ends."""
    host, address, fifo = sys.argv[1:]
    agent: subprocess.Popen[bytes] | None = None
    while True:
        with open(fifo) as lines:
            for line in lines:
                if agent is not None:
                    end(agent)
                    agent = None
                env = json.loads(line)
                if env is not None:
                    command = [sys.executable, "-P", "-m", "replkernel.agent", "--name", host]
                    agent = subprocess.Popen(command, env=env | {"REPLKERNEL_BIND": address})


def end(agent: subprocess.Popen[bytes]) -> None:
    """End an agent with all of its kernels."""
    agent.send_signal(signal.SIGUSR1)
    try:
        agent.wait(STOP_S)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()


if __name__ == "__main__":
    main()
