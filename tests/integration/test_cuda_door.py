"""The library before `cuInit`: real clients find it in the driver's place, however they look that up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from replkernel.agent.io.spawning_place import interpreter_environment
from replkernel.gpu import door_library
from tests.support.stub_drivers import CLIENT, GPU, Stubs

STANDS = """
import sys
from replkernel.gpu.door import Door
def asked():
    print("asked", *calls_so_far(), flush=True)
    return int(sys.argv[1])
def calls_so_far():
    path = pathlib.Path(os.environ["STUB_DRIVERS"], "calls")
    return path.read_text().split()[1::2] if path.exists() else []
mine = Door(asked)
mine.stand(open_=False)
assert mine.is_there
"""
BY_CTYPES = """
import ctypes
print(ctypes.CDLL("libcuda.so.1").cuInit(0))
"""
BY_BINDINGS = """
from cuda.bindings import driver as cu
print(int(cu.cuInit(0)[0]))
"""
LINKED = """
#include <dlfcn.h>
int cuInit(unsigned);
int begin(void) { return cuInit(0); }
int by_name(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY), *found;
    int (*get)(const char *, void **, int, unsigned long long, int *) = dlsym(driver, "cuGetProcAddress_v2");
    if (get("cuGetProcAddress", (void **)&get, 12080, 0, 0)) return -1;
    return get("cuInit", &found, 2000, 0, 0) ? -1 : ((int (*)(unsigned))found)(0);
}
"""
BY_A_LINKED_LIBRARY = "\nimport ctypes\nprint(ctypes.CDLL(os.environ['LINKED']).begin())\n"
BY_ITS_OWN_LOOK = "\nimport ctypes\nprint(ctypes.CDLL(os.environ['LINKED']).by_name())\n"
WAYS = {
    "ctypes": BY_CTYPES,
    "bindings": BY_BINDINGS,
    "linked": BY_A_LINKED_LIBRARY,
    "get-proc-address": BY_ITS_OWN_LOOK,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = door_library.library(str(tmp_path_factory.mktemp("data", numbered=True)))
    if not made:
        pytest.skip("there is no C compiler: no library stands before cuInit")
    return made


@pytest.fixture
def linked(stubs: Stubs, tmp_path: Path) -> str:
    """A library of C that is linked with the driver, as CuPy's modules are."""
    source, made = tmp_path / "linked.c", tmp_path / "liblinked.so"
    source.write_text(LINKED)
    drivers = stubs.env["LD_LIBRARY_PATH"].split(":")[0]
    compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
    command = [compiler, "-shared", "-fPIC", "-o", str(made), str(source), f"-L{drivers}", "-l:libcuda.so.1"]
    subprocess.run([*command, "-ldl"], check=True)
    return str(made)


def run(stubs: Stubs, source: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    prelude = "import os, pathlib\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + source, *arguments],
        env={**stubs.env, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("way", WAYS)
def test_whoever_starts_cuda_asks_before_the_driver_is_called(
    stubs: Stubs, library: str, linked: str, way: str
) -> None:
    ran = run(stubs, STANDS + WAYS[way], "0", LD_PRELOAD=library, LINKED=linked)
    assert (ran.stdout.splitlines(), ran.stderr) == (["asked", "0"], "")
    assert stubs.calls("cuInit") == ["cuInit"]


@pytest.mark.parametrize("way", WAYS)
def test_who_is_refused_has_not_started_cuda_and_may_ask_again(
    stubs: Stubs, library: str, linked: str, way: str
) -> None:
    again = STANDS.replace("int(sys.argv[1])", "left.pop()").replace("mine =", "left = [0, 100]\nmine =")
    ran = run(stubs, again + WAYS[way] + WAYS[way], LD_PRELOAD=library, LINKED=linked)
    assert (ran.stdout.splitlines(), ran.stderr) == (["asked", "100", "asked", "0"], "")
    assert stubs.calls("cuInit") == ["cuInit"], "the driver was called once, by who was let in"


def test_with_a_lease_nobody_is_asked_and_no_lock_of_pythons_is_waited_for(
    stubs: Stubs, library: str
) -> None:
    # `PyDLL` keeps Python's lock: the thread that starts CUDA could not have it.
    source = (
        STANDS
        + """
mine.stand(open_=True)
import ctypes, threading
driver = ctypes.PyDLL("libcuda.so.1")
print(driver.cuInit(0))
"""
    )
    assert run(stubs, source, "0", LD_PRELOAD=library).stdout.splitlines() == ["0"]


def test_dlsym_still_finds_the_library_after_its_caller(stubs: Stubs, library: str, tmp_path: Path) -> None:
    """A library that is preloaded after it finds the next function, not its own, by RTLD_NEXT."""
    source, made = tmp_path / "wrap.c", tmp_path / "libwrap.so"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <sys/types.h>\n"
        'pid_t getppid(void) { return ((pid_t (*)(void))dlsym(RTLD_NEXT, "getppid"))() + 1000000; }\n'
    )
    compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
    ran = run(stubs, "print(os.getppid())", LD_PRELOAD=f"{library}:{made}")
    assert ran.stdout.strip() == str(os.getpid() + 1_000_000), ran.stderr


CHILD = CLIENT + "import os\nstart()\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)"
ANSWERS = """
import socket, subprocess, sys, threading
listener = socket.socket(socket.AF_UNIX)
path = os.environ["STUB_DRIVERS"] + "/asks"
listener.bind(path); listener.listen()
def child(**more):
    env = {**os.environ, "REPLKERNEL_CUDA_ASKS": path, **more}
    return subprocess.Popen([sys.executable, "-c", CHILD], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
def answer(line):
    link, _ = listener.accept()
    print("asked", link.recv(4096).decode().split()[1:], flush=True)
    link.sendall(line)
    link.close()
"""


def test_a_process_that_was_started_asks_at_the_socket_and_waits_for_the_answer(
    stubs: Stubs, library: str
) -> None:
    source = (
        f"CHILD = {CHILD!r}"
        + ANSWERS
        + f"""
waits = child(CUDA_VISIBLE_DEVICES="-1", REPLKERNEL_CUDA_HIDDEN="1")
answer(b"use {GPU}\\n")
print(waits.communicate(), waits.returncode)
goes = child()
answer(b"go\\n")
print(goes.wait())
refused = child(CUDA_VISIBLE_DEVICES="-1", REPLKERNEL_CUDA_HIDDEN="1")
answer(b"no Nobody has a GPU.\\n")
out, err = refused.communicate()
print(refused.returncode, "replkernel: Nobody has a GPU." in err, "NO_DEVICE" in err)
listener.close()
nobody = child()
print(nobody.wait())
"""
    )
    ran = run(stubs, source, LD_PRELOAD=library)
    assert ran.stdout.splitlines() == [
        "asked ['hidden', '-1']",
        f"('{GPU}\\n', '') 0",
        f"asked ['seen', '{GPU}']",
        "0",
        "asked ['hidden', '-1']",
        "1 True True",
        "0",
    ], ran.stderr
    assert len(stubs.calls("cuInit")) == 3


def test_the_door_is_built_once_in_a_directory_of_our_own_and_preloaded_before_the_users(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_library, "_found", {})
    env = {"JUPYTER_DATA_DIR": str(tmp_path), "LD_PRELOAD": "theirs.so", "REPLKERNEL_CUDA_DOOR": "on"}
    first = interpreter_environment(env)["LD_PRELOAD"]
    made, theirs = first.split(":")
    assert theirs == "theirs.so"
    assert (Path(made).parent.stat().st_mode & 0o777, Path(made).is_relative_to(tmp_path)) == (0o700, True)
    stamp = Path(made).stat().st_mtime_ns
    monkeypatch.setattr(door_library, "_found", {})
    assert interpreter_environment(env)["LD_PRELOAD"] == first
    assert Path(made).stat().st_mtime_ns == stamp
    env["REPLKERNEL_CUDA_DOOR"] = "off"
    assert interpreter_environment(env)["LD_PRELOAD"] == "theirs.so"
    # A directory that others can write to is not used, nor is what lies in it.
    Path(made).parent.chmod(0o777)
    monkeypatch.setattr(door_library, "_found", {})
    env["REPLKERNEL_CUDA_DOOR"] = "on"
    assert interpreter_environment(env)["LD_PRELOAD"] == "theirs.so"


def test_without_a_compiler_it_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_library, "_found", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    env = {"JUPYTER_DATA_DIR": str(tmp_path), "REPLKERNEL_CUDA_DOOR": "on"}
    assert "LD_PRELOAD" not in interpreter_environment(env)


def test_a_kernels_children_preload_the_door_beside_the_users_own_libraries(library: str) -> None:
    env = {"LD_PRELOAD": "theirs.so"}
    door_library.carry(f"{library}:theirs.so", env)
    assert env == {"LD_PRELOAD": f"{library}:theirs.so"}
    plain: dict[str, str] = {}
    door_library.carry("theirs.so", plain)
    assert plain == {}
