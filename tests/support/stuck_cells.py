"""Cells that go on for a minute or more unless they are interrupted, each in another way.

Law: each prints `go` when it is about to begin; stock's kernel ends each of `ENDING` at an interrupt.
"""

from __future__ import annotations

GO = "go"

ENDING = {
    "sleep": "import time; print('go', flush=True); time.sleep(60)",
    "python loop": "print('go', flush=True)\nwhile True: pass",
    "regex": "import re; print('go', flush=True); re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "big integers": "print('go', flush=True); x = pow(3, 400_000_000)",
    "sorted with a key": (
        "print('go', flush=True); x = sorted(range(100_000), key=lambda n: sum(range(100_000)))"
    ),
    "numpy": "import numpy as np; a = np.ones((900, 900)); print('go', flush=True)\nwhile True: a @ a",
    "pandas": (
        "import pandas as pd; df = pd.DataFrame({'k': range(300_000)}); df['k'] %= 100; df['v'] = 1.0\n"
        "print('go', flush=True)\nwhile True: df.groupby('k').sum()"
    ),
    "torch": (
        "import torch; w = torch.ones(300, 300, requires_grad=True)\n"
        "x = torch.ones(64, 300); print('go', flush=True)\n"
        "while True: w.grad = None; (x @ w).sum().backward(); w.data -= 0.001 * w.grad"
    ),
    "shell": "!echo go; sleep 60",  # It is shown by who reads what the command prints, and not before.
    "os.system": (
        "import os; print('go', flush=True)\n"
        "if os.WIFSIGNALED(os.system('sleep 60')): raise KeyboardInterrupt  # C's system() ignores it itself"
    ),
    "subprocess": "import subprocess; print('go', flush=True); subprocess.run(['sleep', '60'])",
    "socket": "import socket; s = socket.create_server(('', 0)); print('go', flush=True); s.accept()",
    "await": "import asyncio; print('go', flush=True); await asyncio.sleep(60)",
    "lock": "import threading; print('go', flush=True); a = threading.Lock(); a.acquire(); a.acquire()",
    "input": "print('go', flush=True); input('name? ')",
}

ENDS_AS = {"shell": None, "await": "CancelledError"}
"""What a cell's error is called, as by stock, where it is no KeyboardInterrupt; None: it has none."""

NEVER_LOOKS = (
    "import itertools, collections\nsaid = []\nwhile True:\n"
    "    try:\n        if not said: said.append(print('go', flush=True))\n"
    "        collections.deque(itertools.repeat(None), maxlen=0)\n"
    "    except BaseException: pass"
)
"""C code that holds the interpreter's lock for ever and asks for no signals. One before it is caught."""

CATCHES_ALL = (
    "import time\ncaught = 0\nwhile True:\n"
    "    try:\n        if not caught: print('go', flush=True)\n        time.sleep(60)\n"
    "    except BaseException: caught += 1; print('caught', caught, flush=True)"
)
"""It catches from `go` on: an interrupt may come right behind it, before the next line runs."""
