"""The small pure parts: why processes die, what tells zygotes apart, who may keep files, frames, custody."""

from __future__ import annotations

import signal
import struct

import pytest

from replkernel.agent.core.custody import Custody
from replkernel.agent.io.death import Exit, explain
from replkernel.agent.io.folder import problem_with_names
from replkernel.agent.io.spawning_place import (
    HASH_SEED,
    interpreter_environment,
    preload_names,
    zygote_idle_s,
    zygote_key,
)
from replkernel.agent.io.zygote import BUSY_AFTER_S, quiet_ms
from replkernel.agent.io.zygote_wire import (
    FRAME_BYTES_MAX,
    ForkKernel,
    FrameReader,
    KernelExited,
    frame,
    report_decoder,
    request_decoder,
)
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import KernelId, ReplicaId
from replkernel.settings import read_settings

GIB = 1 << 30


def spec(**more: object) -> KernelSpec:
    given: dict[str, object] = {
        "kernel_id": KernelId("k"),
        "incarnation": "i",
        "key": "secret",
        "signature_scheme": "hmac-sha256",
        "python": "python",
        "env": {},
        "cwd": "/",
        "store_url": "",
        "replicas": 3,
    }
    return KernelSpec(**{**given, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "shortage", "expected"),
    [
        (Exit(3 << 8), "", "its process ended by itself with exit code 3"),
        (
            Exit(signal.SIGKILL, 3 * GIB),
            "its cgroup's limit memory.max is 3.0 GiB",
            (
                "killed by the kernel for lack of memory "
                "(its cgroup's limit memory.max is 3.0 GiB; RSS was 3.0 GiB)"
            ),
        ),
        (
            Exit(signal.SIGKILL),
            "the machine had none",
            "killed by the kernel for lack of memory (the machine had none)",
        ),
        (Exit(signal.SIGKILL, GIB // 2), "", "killed by SIGKILL (RSS was 512 MiB)"),
        (Exit(signal.SIGSEGV | 0x80), "somewhere", "killed by SIGSEGV (segmentation fault)"),
        (
            Exit(None),
            "the machine had no memory left",
            (
                "its process ended, probably killed by the kernel for lack of memory "
                "(the machine had no memory left)"
            ),
        ),
        (
            Exit(None),
            "",
            "its process ended, nobody knows how: its host agent has been restarted since its start",
        ),
    ],
)
def test_deaths_are_explained(end: Exit, shortage: str, expected: str) -> None:
    assert explain(end, shortage) == expected


def test_only_what_imports_depend_on_tells_zygotes_apart() -> None:
    base = {"PYTHONPATH": "/a", "OMP_NUM_THREADS": "2", "EDITOR": "vi", "REPLKERNEL_STORE": "s3://x"}
    key = zygote_key("python", base, ("numpy",))
    assert zygote_key("python", {**base, "EDITOR": "ed", "REPLKERNEL_STORE": "file:///x"}, ("numpy",)) == key
    for other in (
        zygote_key("python3", base, ("numpy",)),
        zygote_key("python", {**base, "OMP_NUM_THREADS": "4"}, ("numpy",)),
        zygote_key("python", {**base, "LD_PRELOAD": "x.so"}, ("numpy",)),
        zygote_key("python", base, ("numpy", "torch")),
    ):
        assert other != key


def test_a_kernels_interpreter_has_a_fixed_hash_seed_unless_the_user_set_one() -> None:
    assert interpreter_environment({"JPY_PARENT_PID": "1"}) == {"PYTHONHASHSEED": HASH_SEED}
    assert interpreter_environment({"PYTHONHASHSEED": "7"}) == {"PYTHONHASHSEED": "7"}


def test_preload_names_are_cleaned() -> None:
    assert preload_names({"REPLKERNEL_PRELOAD": " numpy, ,torch "}) == ("numpy", "torch")


@pytest.mark.parametrize(
    ("more", "replica", "named"),
    [
        ({}, "r1", ""),
        ({"kernel_id": "../x"}, "r1", "kernel id"),
        ({"kernel_id": ""}, "r1", "kernel id"),
        ({"incarnation": "a/b"}, "r1", "incarnation"),
        ({}, "r0", "replica"),
        ({}, "r1/..", "replica"),
    ],
)
def test_names_become_paths_only_when_they_are_harmless(
    more: dict[str, object], replica: str, named: str
) -> None:
    problem = problem_with_names(spec(**more), ReplicaId(replica))
    assert named in problem
    assert bool(problem) == bool(named)


def test_frames_survive_any_cut() -> None:
    data = frame(KernelExited(1, 2, 3, 0.5)) + frame(KernelExited(4, 5, 6, 1.5))
    reader = FrameReader()
    bodies = [body for byte in data for body in reader.feed(bytes([byte]))]
    assert [report_decoder.decode(body) for body in bodies] == [
        KernelExited(1, 2, 3, 0.5),
        KernelExited(4, 5, 6, 1.5),
    ]


def test_a_request_carries_its_birth() -> None:
    (body,) = FrameReader().feed(frame(ForkKernel(9, b"birth")))
    assert request_decoder.decode(body) == ForkKernel(9, b"birth")


def test_absurd_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        FrameReader().feed(struct.pack("!I", FRAME_BYTES_MAX + 1))


def test_an_orphan_is_kept_for_its_grace_time() -> None:
    custody = Custody(spec(), 30.0, now=0.0)
    custody.router_came()
    assert custody.deadline() is None
    custody.router_gone(100.0)
    assert custody.orphaned
    assert custody.overdue(129.0) == ""
    assert "REPLKERNEL_ORPHAN_GRACE_S" in custody.overdue(130.0)
    custody.router_came()
    assert custody.overdue(1000.0) == ""


def test_a_detached_kernel_needs_no_router() -> None:
    custody = Custody(spec(detached=True), 30.0, now=0.0)
    assert custody.deadline() is None
    assert custody.overdue(1e9) == ""


def test_a_kernel_admits_the_digest_of_its_key_alone() -> None:
    custody = Custody(spec(), 30.0, now=0.0)
    assert custody.admits("2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b")
    assert not custody.admits("secret")
    assert not custody.admits("é")


def test_a_zygote_that_is_never_left_alone_takes_a_short_pause_for_the_rest_of_its_imports() -> None:
    assert quiet_ms(0.0, 2.0) == 2000
    assert quiet_ms(BUSY_AFTER_S, 2.0) == 100
    assert quiet_ms(BUSY_AFTER_S, 0.05) == 50


def test_a_zygote_imports_nothing_more_where_its_user_says_so() -> None:
    assert quiet_ms(0.0, 0.0) is None
    assert quiet_ms(BUSY_AFTER_S, 0.0) is None
    said = ("", "0", " 0.5 ", "soon", "-1", "nan", "inf", "1e9")
    found = [zygote_idle_s({"REPLKERNEL_ZYGOTE_IDLE_S": text}) for text in said]
    assert found == [2.0, 0.0, 0.5, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert zygote_idle_s({}) == read_settings({}).zygote_idle_s
