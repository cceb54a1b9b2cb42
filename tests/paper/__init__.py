"""The paper suite (`make sim`): published figures beside ours, and why they differ.

Law: a figure that is not reproduced is told like any other; nothing is asserted but that the runs end.
"""
