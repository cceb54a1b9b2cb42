"""The HDFS store's half of the work, over pyarrow's own local file system in place of a name node."""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.objects.backends.hdfs import fault
from replkernel.objects.backends.tree import TreeBackend
from tests.contracts.object_store import ObjectStoreContract

arrow_files = pytest.importorskip("pyarrow.fs")


class TestArrowStore(ObjectStoreContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> TreeBackend:
        from fsspec.implementations.arrow import ArrowFSWrapper

        files = ArrowFSWrapper(arrow_files.LocalFileSystem(), skip_instance_cache=True)
        return TreeBackend(files, str(tmp_path / "store"), fault, staged=True)


@pytest.mark.parametrize(
    ("raised", "told", "refused"),
    [
        (OSError("Unable to load libjvm: not found"), "without Java", True),
        (
            OSError("org.apache.hadoop.security.AccessControlException: Permission denied"),
            "refuses access",
            True,
        ),
        (OSError("java.net.ConnectException: Connection refused"), "cannot be reached", False),
        (OSError("DSQuotaExceededException: The DiskSpace quota"), "has no room left", False),
        (OSError("something else"), "failed (something else)", False),
    ],
)
def test_the_errors_of_hadoop_are_worded(raised: OSError, told: str, refused: bool) -> None:
    worded = fault(raised)
    assert told in worded.problem
    assert worded.refused is refused
