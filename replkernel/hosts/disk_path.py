"""The class of paths on this machine, for what runs in a process that the user's code shares.

`pathlib.Path(...)` looks the name ``Path`` up in its module, where a notebook may have put its own.
"""

from __future__ import annotations

from pathlib import Path

DiskPath = type(Path())
"""What ``Path(...)`` made when this process began."""
