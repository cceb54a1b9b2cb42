#!/usr/bin/python3 -IS
"""The runtime of the tests' nodes: runc, with this machine's programs shown to each container, read only.

Where NVIDIA's runtime would bring GPUs in, simulated ones are.
"""

import json
import os
import sys
from pathlib import Path

GPUS = 4
ROOT = Path(__file__).resolve().parents[2]
SHOWN = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ssl", "/etc/alternatives")


def show(bundle: Path) -> None:
    """Add the mounts to what containerd has written for a container."""
    path = bundle / "config.json"
    config = json.loads(path.read_text())
    python = Path(os.path.realpath(ROOT / ".venv/bin/python")).parents[1]
    for place in (*SHOWN, str(ROOT), str(python)):
        if Path(place).exists():
            mount = {"destination": place, "source": place, "type": "bind", "options": ["rbind", "ro"]}
            config["mounts"].insert(0, mount)
    process = config.get("process", {})
    if "--stay" in process.get("args", ()) or "NVIDIA_VISIBLE_DEVICES=all" in process.get("env", ()):
        process["env"].append(f"REPLKERNEL_FAKE_GPUS={GPUS}")
    # All nodes share this machine's cores: by its request, a pod without one would have next to nothing.
    config.get("linux", {}).get("resources", {}).get("cpu", {}).pop("shares", None)
    path.write_text(json.dumps(config))


if __name__ == "__main__":
    words = sys.argv[1:]
    if "create" in words and "--bundle" in words:
        show(Path(words[words.index("--bundle") + 1]))
    os.execvp("runc", ["runc", *words])
