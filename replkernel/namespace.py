"""The former name of `replkernel.state`: notebooks that import it go on."""

from replkernel.state import register

__all__ = ["register"]
