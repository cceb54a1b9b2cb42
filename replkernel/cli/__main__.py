"""`python -m replkernel.cli` is the command `replkernel`."""

from replkernel.cli import main

raise SystemExit(main())
