"""The user namespace: what changed in it, how it is captured, and how it is rebuilt elsewhere."""

from replkernel.state.hooks import register

__all__ = ["register"]
