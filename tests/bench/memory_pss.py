"""What one more kernel costs in memory (PSS) with numpy and pandas loaded, all its processes together.

Ours is the growth from one running kernel to two, since agent and zygote are shared; stock is one process.
"""

from __future__ import annotations

import time

from tests.bench.kernels import Place, kernel, place, pss_bytes
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

CODE = "import numpy as np\nimport pandas as pd\nframe = pd.DataFrame({'a': np.arange(1000)})\nframe.a.sum()"
SETTLE_S = 6.0
MIB = 2**20


def _settled(where: Place) -> float:
    time.sleep(SETTLE_S)
    return pss_bytes(where.pids()) / MIB


def _one_more(**settings: str) -> tuple[float, float]:
    """Return the PSS of all processes with one kernel, and the growth that a second one brings."""
    with place(**settings) as here, kernel(OURS, here) as first:
        first.run(CODE)
        one = _settled(here)
        with kernel(OURS, here) as second:
            second.run(CODE)
            return one, _settled(here) - one


def measure() -> Result:
    """Measure with both packages preloaded, as a deployment asks for; without, as a detail."""
    with place() as there, kernel(STOCK, there) as stock:
        stock.run(CODE)
        alone = _settled(there)
    first, more = _one_more(REPLKERNEL_PRELOAD="numpy,pandas")
    plain_first, plain_more = _one_more()
    details = {
        "preload": "numpy,pandas",
        "all_processes_with_one_kernel_mib": first,
        "without_preload": {
            "one_kernel_mib": plain_first,
            "one_more_mib": plain_more,
            "ratio": plain_more / alone,
        },
    }
    return Result("memory_pss", "MiB", [more], [alone], "at most 2.2 x stock", details)
