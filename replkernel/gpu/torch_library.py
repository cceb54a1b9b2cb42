"""The one place where torch is imported for its objects' sake: after the notebook has imported it itself."""

from __future__ import annotations

import torch

__all__ = ["torch"]
