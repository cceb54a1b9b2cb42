"""Fixtures that several files of this folder take from `tests.support`."""

from tests.support.stub_drivers import stubs

__all__ = ["stubs"]
