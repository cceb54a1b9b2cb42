"""A process whose state a test may change: everything is put back as it was."""

from __future__ import annotations

import locale
import logging
import os
import random
import sys
import time
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    environ, cwd, path = dict(os.environ), os.getcwd(), sys.path[:]
    state, limit, place = random.getstate(), sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL)
    digits = sys.get_int_max_str_digits()
    level, disabled, handlers = logging.root.level, logging.root.manager.disable, logging.root.handlers[:]
    with warnings.catch_warnings():
        yield
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.path[:] = path
    random.setstate(state)
    sys.setrecursionlimit(limit)
    sys.set_int_max_str_digits(digits)
    locale.setlocale(locale.LC_ALL, place)
    logging.root.setLevel(level)
    logging.disable(disabled)
    logging.root.handlers[:] = handlers
