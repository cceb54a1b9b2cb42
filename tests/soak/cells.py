"""The cells of a soak, by seed: they show the same on any kernel that loses nothing. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

SETTING = """
import hashlib, random, sys
import numpy as np
import pandas as pd
rng = np.random.default_rng(7)
weights = rng.standard_normal((300, 300)); moments = np.zeros_like(weights); losses = []
frame = pd.DataFrame({"step": [0], "value": [1.0]})
settings = {"rate": 0.1, "names": ["a", "b"], "shared": None}; settings["shared"] = settings["names"]
class Node:
    def __init__(self, value, up=None): self.value, self.up = value, up
tree = Node(0); stopped = 0
"""

DIGEST = """
def _digest(*values):
    return hashlib.blake2b(repr(values).encode(), digest_size=8).hexdigest()
print(_digest(weights.tobytes(), moments.tobytes(), losses), _digest(frame.to_csv()),
      _digest(settings, settings["shared"] is settings["names"]),
      _digest(tree.value, tree.up and tree.up.value),
      stopped, rng.bit_generator.state["state"]["state"] % 997, random.random(),
      sorted(name for name in globals() if not name.startswith("_") and name not in ("In", "Out")))
"""
"""Says of every variable what it is."""


class Cell(NamedTuple):
    """A cell's source; `interrupted` once it has said that it runs, `fails` where its error is the point."""

    code: str
    interrupted: bool = False
    fails: bool = False


def _train(dice: random.Random) -> Cell:
    steps = dice.randint(1, 4)
    return Cell(
        f"for _ in range({steps}):\n"
        "    gradient = rng.standard_normal(weights.shape) * 0.01 + weights * 1e-3\n"
        "    moments = 0.9 * moments + gradient; weights -= settings['rate'] * moments\n"
        "    losses = [*losses[-200:], float((weights ** 2).mean())]\n"
        "print(round(losses[-1], 9))"
    )


def _frame(dice: random.Random) -> Cell:
    return Cell(
        f"frame.loc[len(frame)] = [{dice.randint(1, 99)}, {dice.random():.6f}]\n"
        "frame = frame.tail(500).reset_index(drop=True)\n"
        "frame.groupby(frame.step % 7).value.sum().round(6)"
    )


def _output(dice: random.Random) -> Cell:
    return Cell(f"for number in range({dice.randint(10, 2_000)}): print(number, 'a line of output')")


def _plot(dice: random.Random) -> Cell:
    return Cell(
        "from IPython.display import display, Image\n"
        f"display(Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes({dice.randint(1, 40)} * 1024), format='png'))"
    )


def _error(dice: random.Random) -> Cell:
    return Cell(dice.choice(["1 / 0", "settings['nothing']", "unknown_name", "[][3]"]), fails=True)


def _interrupt(_dice: random.Random) -> Cell:
    return Cell(
        "try:\n    print('runs', flush=True)\n    while True: pass\n"
        "except KeyboardInterrupt:\n    stopped += 1",
        interrupted=True,
    )


def _object(dice: random.Random) -> Cell:
    return Cell(
        f"settings['names'].append({dice.randint(0, 9)}); del settings['names'][:-20]\n"
        f"tree = Node({dice.randint(0, 999)}, Node(tree.value)); random.seed({dice.randint(0, 99)})\n"
        "print(tree.value, settings['shared'][-1])"
    )


def _class(dice: random.Random) -> Cell:
    return Cell(f"class Made:\n    number = {dice.randint(0, 999)}\nmade = Made(); print(made.number)")


KINDS = {_train: 8, _frame: 6, _output: 3, _plot: 2, _error: 3, _interrupt: 1, _object: 8, _class: 2}


def cells(dice: random.Random) -> Iterator[Cell]:
    """Yield cells for ever."""
    while True:
        (kind,) = dice.choices(list(KINDS), list(KINDS.values()))
        yield kind(dice)
