"""Where several processes run modules: a test whose process died has failed, and is not tried again.

xdist hands what a process has left to another, from the test on that ended it. One that hangs ends its
process by its timeout, every time: the run would have no end. A single test that is left it never begins.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class OnceEach(LoadFileScheduling):
    """Modules to processes, each test once."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process; return the test that it died of, if any, and give the others that it had away."""
        units = self.assigned_work.pop(node)
        left = [name for unit in units.values() for name, done in unit.items() if not done]
        if not left:
            return None
        for scope, unit in units.items():
            if left[0] in unit:
                unit[left[0]] = True
            if not all(unit.values()):
                self.workqueue[scope] = unit
        for other in self.nodes:
            self._reschedule(other)
        return left[0]

    def schedule(self) -> None:
        """Give work to new processes too: who has a single test begins once it is known to be the last."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OnceEach | None:
    """Take this one for `--dist loadfile`."""
    return OnceEach(config, log) if config.getvalue("dist") == "loadfile" else None
