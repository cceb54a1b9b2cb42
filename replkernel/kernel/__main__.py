"""`python -m replkernel.kernel`: a kernel process in a fresh interpreter, its birth on standard input."""

from __future__ import annotations

import os
import sys

from replkernel.kernel import own_builtins
from replkernel.kernel.birth import BIRTH_BYTES_MAX, decode_birth


def main() -> None:
    """Read the birth and run the kernel, without the directory that ``-m`` put on the search path."""
    if sys.path and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    birth = decode_birth(sys.stdin.buffer.read(BIRTH_BYTES_MAX + 1))
    own_builtins.install()
    from replkernel.kernel.process import run_kernel

    run_kernel(birth)


if __name__ == "__main__":
    main()
