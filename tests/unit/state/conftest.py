"""Tests of state compare with what libraries made at their import: those that change others come first."""

from __future__ import annotations

import nbformat.sign  # noqa: F401  # tells sqlite3 how to keep times
