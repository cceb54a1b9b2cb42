"""A process in which AccaSim plays a SWF file: `python peer_accasim.py FILE NODESxCORES easy|fifo DIRECTORY`.

Run by the Python of AccaSim's own environment; imports nothing of ours. Prints one JSON object. The shim: it
takes `Mapping` from `collections`, where Python has not had it since 3.10.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Play the file, and tell what that took: reading, as AccaSim reads while it plays."""
    file, cluster, discipline, directory = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
    from accasim.base.allocator_class import FirstFit  # type: ignore[import-not-found]
    from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut  # type: ignore[import-not-found]
    from accasim.base.simulator_class import Simulator  # type: ignore[import-not-found]

    nodes, cores = (int(number) for number in cluster.split("x"))
    system = directory / "system.json"
    groups = {"groups": {"node": {"core": cores}}, "resources": {"node": nodes}}
    system.write_text(json.dumps({**groups, "equivalence": {"processor": {"core": 1}}, "start_time": 0}))
    dispatcher = {"easy": EASYBackfilling, "fifo": FirstInFirstOut}[discipline](FirstFit())
    simulator: Any = Simulator(
        file,
        str(system),
        dispatcher,
        RESULTS_FOLDER_PATH=str(directory / "results"),
        scheduling_output=False,
        statistics_output=False,
        show_statistics=False,
        LOG_LEVEL="WARNING",
    )
    began = time.process_time()
    simulator.start_simulation()
    took = time.process_time() - began
    waits = simulator.mapper.wtimes
    print("\n" + json.dumps({"jobs": len(waits), "cpu_s": took, "mean_wait_s": sum(waits) / len(waits)}))


if __name__ == "__main__":
    main()
