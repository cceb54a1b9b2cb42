"""replkernel_scheduler: who may use which GPU until when, decided by a pure state machine.

Imports nothing of replkernel, and no I/O: drivers feed it events with the time and perform its effects.
"""


def core_is_compiled() -> bool:
    """Say whether the core is an extension module, or Python's own code. Both decide the same."""
    from replkernel_scheduler import core

    return not str(core.__file__).endswith(".py")
