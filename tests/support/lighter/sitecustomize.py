"""Has tests' zygotes import no more than kernels need to start, unless WHOLE_ZYGOTES is set.

An agent's zygote imports the rest in its first quiet moment, and completes a name with jedi. That takes a
second, and most tests' agents live for five. A user's first kernels are forked before that moment too.
"""

import os
import sys

if "replkernel.agent.io.zygote" in sys.orig_argv and "WHOLE_ZYGOTES" not in os.environ:
    from replkernel.kernel import preload

    preload.preload_more = lambda: None
