"""Fixtures that several files of this folder take from `tests.support`."""

from tests.support.raft_by_tcp import by_tcp
from tests.support.stub_drivers import stubs

__all__ = ["by_tcp", "stubs"]
