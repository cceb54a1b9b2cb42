"""Browser tests run real kernels too, so they need what end-to-end tests need."""

from tests.e2e.conftest import _kernel_in_reach as _kernel_in_reach
