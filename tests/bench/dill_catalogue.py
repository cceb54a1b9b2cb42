"""dill's own list of kinds of objects: which of them come back from another replica, and which from dill.

What dill calls a failure is in its list too. An object counts as carried when it comes back as one of its own
type; that its contents are right is for the tests of each kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import Counter

from tests.bench.report import Result

OURS_ALONE, DILL_ALONE, BOTH, NEITHER = "ours alone", "dill alone", "both", "neither"


def measure() -> Result:
    """Carry each kind both ways, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.dill_catalogue"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    kinds: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    counts = Counter(kinds.values())
    ours, dills = counts[BOTH] + counts[OURS_ALONE], counts[BOTH] + counts[DILL_ALONE]
    for name in sorted(kinds):
        if kinds[name] in (DILL_ALONE, NEITHER):
            print(f"  {kinds[name]}: {name}")
    return Result(
        "dill_catalogue", "kinds", [ours], [dills], f"of {len(kinds)}, what dill carries or more", kinds
    )


def _by_dill(value: object) -> bool:
    import dill

    try:
        return type(dill.loads(dill.dumps(value))) is type(value)
    except Exception:
        return False


def _by_ours(value: object) -> bool:
    from tests.support.notebook import pair

    one, two = pair()
    one.namespace["x"] = value
    delta = one.capture(1)
    if any(record.pins for record in delta.components):
        return False
    report = two.take(delta)
    return not report.failed and not one.state.unfaithful and type(two.namespace.get("x")) is type(value)


def _main() -> None:
    warnings.simplefilter("ignore")
    from dill import _objects

    known = {**_objects.registered, **_objects.d, **_objects.x, **_objects.a, **_objects.failures}
    told = {}
    for name, value in known.items():
        ways = (_by_ours(value), _by_dill(value))
        told[name] = {(True, True): BOTH, (True, False): OURS_ALONE, (False, True): DILL_ALONE}.get(
            ways, NEITHER
        )
    print(json.dumps(told))


if __name__ == "__main__":
    _main()
