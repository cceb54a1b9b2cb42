"""The official Jupyter kernel test, on this kernel instead of ``python3``.

``range`` is not among the history operations: a stock kernel fails it too (its session numbers differ).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import jupyter_kernel_test
import pytest

from tests.e2e.hosts.supervisor import PLACE, site_of_a_test
from tests.support.ending import end_agents
from tests.support.stock import OURS, kernelspec_dir


class TestReplicatedKernel(jupyter_kernel_test.KernelTests):
    """Everything that the official test can ask of a Python kernel."""

    kernel_name = OURS
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples: ClassVar[list[dict[str, Any]]] = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples: ClassVar[list[str]] = [
        "1",
        "print('hello, world')",
        "def f(x):\n  return x*2\n\n\n",
    ]
    incomplete_code_samples: ClassVar[list[str]] = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples: ClassVar[list[str]] = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result: ClassVar[list[dict[str, str]]] = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data: ClassVar[list[dict[str, str]]] = [
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
        {
            "code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))",
            "mime": "text/latex",
        },
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls) -> None:
        """Start one kernel for all tests, in directories that are its own."""
        cls.base = Path(tempfile.mkdtemp(prefix="rkjt-", dir="/tmp"))
        cls.patch = pytest.MonkeyPatch()
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "REPLKERNEL_SOCKET_DIR"):
            directory = cls.base / name.lower()[-14:]
            directory.mkdir(mode=0o700)
            cls.patch.setenv(name, str(directory))
        cls.patch.setenv("JUPYTER_PATH", str(kernelspec_dir(cls.base / "jupyter")))
        cls.across = contextlib.ExitStack()
        if PLACE in os.environ:
            for name, value in cls.across.enter_context(site_of_a_test()).items():
                cls.patch.setenv(name, value)
        cls.env = dict(os.environ)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls) -> None:
        """End the kernel and its agents."""
        super().tearDownClass()
        end_agents(cls.env)
        cls.across.close()
        cls.patch.undo()
        shutil.rmtree(cls.base, ignore_errors=True)
