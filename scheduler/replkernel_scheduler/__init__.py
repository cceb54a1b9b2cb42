"""replkernel_scheduler: who may use which GPU until when, decided by a pure state machine.

Imports nothing of replkernel, and no I/O: drivers feed it events with the time and perform its effects.
"""
