"""A process that writes its whole namespace to a file after each cell: `peer_whole.py LIBRARY FILE < cells`.

LIBRARY is cloudpickle or dill. Prints one JSON object: for each cell the seconds that running it and writing
the namespace took, and the bytes written.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path


def main() -> None:
    """Run the cells of standard input, (name, code) pairs."""
    library, path = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    cells: list[tuple[str, str]] = json.load(sys.stdin)
    namespace: dict[str, object] = {"__name__": "__main__"}
    costs: dict[str, list[dict[str, float]]] = {}
    for name, code in cells:
        began = time.perf_counter()
        exec(compile(code, "<cell>", "exec"), namespace)
        user = {key: value for key, value in namespace.items() if not key.startswith("__")}
        with path.open("wb") as file:
            library.dump(user, file)
        took = time.perf_counter() - began
        costs.setdefault(name, []).append({"seconds": took, "bytes": path.stat().st_size})
    print("\n" + json.dumps(costs))


if __name__ == "__main__":
    main()
