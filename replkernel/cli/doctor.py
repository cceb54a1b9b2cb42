"""`replkernel doctor`: one line for each part that a kernel needs: ok, or what to do about it.

It changes nothing but a probe object in the store, which it removes. Law: a check that fails for a reason
nobody foresaw is reported as wrong, and never stops the ones after it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from replkernel.agent.io.lookup import AgentAddress, find_agent, reaches
from replkernel.agent.io.socket_places import check_given
from replkernel.agent.io.start import lives_elsewhere
from replkernel.errors import ReplkernelError
from replkernel.hosts.places import FAR, hosts_are_chosen
from replkernel.launch.unknown_settings import misspelt, unknown_settings
from replkernel.leasing.asking import scheduler_trouble
from replkernel.leasing.finding import find_scheduler
from replkernel.settings import host_name, read_settings

KERNEL = "replkernel"
PROVISIONER = "replkernel-provisioner"
SERVER_EXTENSION = "replkernel_server"
LAB_EXTENSION = "@replkernel/labextension"
REINSTALL = "run `pip install --force-reinstall replkernel` in the environment that runs Jupyter"

Environment = Mapping[str, str]


class Finding(msgspec.Struct, frozen=True):
    """What a check found: `note` is neither good nor bad (something optional is absent)."""

    state: Literal["ok", "note", "wrong"]
    text: str


def ok(text: str) -> Finding:
    """Say that a part is in order."""
    return Finding("ok", text)


def note(text: str) -> Finding:
    """Say that an optional part is absent, and what that means."""
    return Finding("note", text)


def wrong(text: str) -> Finding:
    """Say what is wrong and what to do."""
    return Finding("wrong", text)


def check_kernelspec(env: Environment) -> Finding:
    """Is the kernel in the launcher?"""
    from jupyter_client.kernelspec import KernelSpecManager

    found = KernelSpecManager().find_kernel_specs()
    if KERNEL in found:
        return ok(found[KERNEL])
    return wrong(f"no kernelspec `{KERNEL}` on the Jupyter path: {REINSTALL}")


def check_provisioner(env: Environment) -> Finding:
    """Does jupyter_client find the provisioner? Without it, it drops the kernelspec from its list."""
    points = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners", name=PROVISIONER)
    if not points:
        return wrong(f"the entry point `{PROVISIONER}` is missing, so Jupyter hides the kernel: {REINSTALL}")
    loaded = next(iter(points)).load()
    return ok(f"{loaded.__module__}.{loaded.__name__}")


def check_server_extension(env: Environment) -> Finding:
    """Will Jupyter Server load our extension?"""
    from jupyter_core.paths import jupyter_config_path
    from jupyter_server.extension.config import ExtensionConfigManager

    enabled: dict[str, bool] = {}
    for directory in reversed(jupyter_config_path()):
        enabled.update(ExtensionConfigManager(read_config_path=[directory]).get_jpserver_extensions())
    if SERVER_EXTENSION not in enabled:
        return wrong(f"Jupyter Server does not know {SERVER_EXTENSION}: {REINSTALL}")
    if not enabled[SERVER_EXTENSION]:
        return wrong(f"it is disabled: run `jupyter server extension enable {SERVER_EXTENSION}`")
    importlib.import_module(f"{SERVER_EXTENSION}.extension")
    return ok("enabled")


def check_lab_extension(env: Environment) -> Finding:
    """Is the lab extension where JupyterLab looks?"""
    from jupyter_core.paths import jupyter_path

    for directory in jupyter_path("labextensions"):
        if (Path(directory) / LAB_EXTENSION / "package.json").is_file():
            return ok(str(Path(directory) / LAB_EXTENSION))
    if importlib.util.find_spec("jupyterlab") is None:
        return note("not installed, and JupyterLab is not installed here either")
    return wrong(
        "JupyterLab will not show which replica ran a cell: in a source tree run `make lab`, else "
        + REINSTALL
    )


def check_settings(env: Environment) -> Finding:
    """Are all settings in the environment usable?"""
    settings = read_settings(env)
    set_here = sorted(name for name in env if name.startswith("REPLKERNEL_"))
    strange = unknown_settings(set_here)
    if strange:
        nothing = f"{', '.join(strange)}: no setting of that name; docs/reference/settings.md lists them all"
        return note(misspelt(strange) or nothing)
    return ok(
        f"{settings.replicas} replicas, executor {settings.executor}; set: {', '.join(set_here) or 'none'}"
    )


def check_store(env: Environment) -> Finding:
    """Can an object be written to the store and read back?"""
    from replkernel.objects.store import open_store

    store = open_store(read_settings(env).store_url, env)
    try:
        store.probe()
    finally:
        store.close()
    told = "; ".join(filter(None, (store.warning, store.exposed)))
    return note(f"{store.url}: {told}") if told else ok(store.url)


def check_libraries(env: Environment) -> Finding:
    """Which installed packages say how a library's objects travel, and are they usable?"""
    from replkernel.state.libraries.index import installed

    found = installed()
    if found.faults:
        return wrong(" ".join(found.faults))
    return ok(f"those built in; by other packages: {', '.join(sorted(found.records)) or 'none'}")


def check_gpus(env: Environment) -> Finding:
    """Which GPUs does the driver list?"""
    pretended = read_settings(env).fake_gpus
    if pretended:
        return note(f"{pretended} simulated GPUs (REPLKERNEL_FAKE_GPUS)")
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return note("none on this host (no nvidia-smi); cells run on the CPU")
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    if listed.returncode != 0:
        return wrong(
            f"nvidia-smi fails ({(listed.stderr or listed.stdout).strip()[:200]}): repair the NVIDIA driver"
        )
    names = [line.partition(" (UUID")[0] for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return ok("; ".join(names)) if names else note("the driver lists none; cells run on the CPU")


def check_scheduler(env: Environment) -> Finding:
    """Does the scheduler answer, and does it take our token?"""
    url, _ = find_scheduler(env)
    if not url:
        return note(
            "none set (REPLKERNEL_SCHEDULER_URL), and none runs here: a cell that asks for GPUs starts one"
        )
    trouble = scheduler_trouble(url, env)
    return wrong(trouble) if trouble else ok(url)


def check_core(env: Environment) -> Finding:
    """Which code decides in a scheduler of this installation? Both decide the same."""
    spec = importlib.util.find_spec("replkernel_scheduler.core")
    if spec is None or spec.origin is None:
        return note("no scheduler is installed here")
    return ok("Python's own code" if spec.origin.endswith(".py") else "compiled")


def check_agent(env: Environment) -> Finding:
    """Are there agents on the hosts that kernels are to live on, or could one listen here?"""
    own = host_name(env)
    check_given(own, env)
    if hosts_are_chosen(env):
        return note("the scheduler chooses among the hosts that have one (REPLKERNEL_HOSTS=auto)")
    named = read_settings(env).hosts or (own,)
    found = {host: find_agent(host, env) for host in named}
    missing = [told for host, address in found.items() if (told := _why_missing(host, address, env))]
    if missing:
        return wrong(
            f"{'; '.join(missing)}: start it there with `replkernel agent --name NAME --bind ADDRESS`"
        )
    later = [host for host, address in found.items() if host != own and address is None]
    if later:
        are = "has no agent yet: one is" if len(later) == 1 else "have no agents yet: they are"
        return note(f"{', '.join(later)} (REPLKERNEL_HOSTS) {are} started on this machine by a kernel")
    if own in found and found[own] is None:
        return note(f"none runs on {own}; the first kernel starts one")
    return ok("; ".join(_shown(address) for address in found.values() if address is not None))


def _why_missing(host: str, address: AgentAddress | None, env: Environment) -> str:
    """Return why a host of another machine cannot be used; empty if it can, or is of this one."""
    if address is None:
        elsewhere = lives_elsewhere(host, env)
        return f"{host} has no agent, and none is started here ({elsewhere})" if elsewhere else ""
    trouble = reaches(address)
    return f"{host} does not answer ({trouble})" if trouble else ""


def _shown(address: AgentAddress) -> str:
    if address.far:
        return f"{address.name} at {address.endpoint.rpartition('/')[0].removeprefix(FAR)}"
    return f"{address.name}, process {address.pid}, release {address.version}"


CHECKS: tuple[tuple[str, Callable[[Environment], Finding]], ...] = (
    ("settings", check_settings),
    ("kernelspec", check_kernelspec),
    ("provisioner", check_provisioner),
    ("server extension", check_server_extension),
    ("lab extension", check_lab_extension),
    ("store", check_store),
    ("libraries", check_libraries),
    ("GPUs", check_gpus),
    ("scheduler", check_scheduler),
    ("core of a scheduler here", check_core),
    ("agent", check_agent),
)


def examine(check: Callable[[Environment], Finding], env: Environment) -> Finding:
    """Run one check; whatever it raises becomes a finding."""
    try:
        return check(env)
    except ReplkernelError as error:
        return wrong(str(error))
    except Exception as error:  # the next check must run, whatever broke this one
        return wrong(f"the check itself failed with {type(error).__name__}: {error}; {REINSTALL}")


def run_doctor(env: Environment | None = None) -> int:
    """Print a line for each check; return 1 if something is wrong."""
    seen = os.environ if env is None else env
    return tell((name, examine(check, seen)) for name, check in CHECKS)


def tell(findings: Iterable[tuple[str, Finding]]) -> int:
    """Print a line for each finding; return 1 if something is wrong."""
    states: list[str] = []
    told: set[str] = set()
    for name, finding in findings:
        if finding.state == "wrong" and finding.text in told:
            finding = note("not looked at, because of what is wrong above")
        told.add(finding.text)
        states.append(finding.state)
        print(f"{finding.state:<5}  {name:<16}  {finding.text}")
    count = states.count("wrong")
    print("All is well." if count == 0 else f"{count} of {len(states)} need attention.")
    return 1 if count else 0
