"""Put one kernel's router together and run it.

Law: the ports are bound before anything else is looked at, so that clients never meet a closed door; what
is wrong is said in one sentence, without a traceback.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import sys
import time
import uuid
from collections.abc import Mapping
from functools import partial

from replkernel import settings as configuration
from replkernel.agent.start import Start
from replkernel.errors import ConnectionFileError, PortInUseError, SettingError
from replkernel.protocol import KernelSpec
from replkernel.records import HostName, KernelId
from replkernel.router.answers import Fault
from replkernel.router.connection import ConnectionFile, Ports, find_connection_file, read_connection_file
from replkernel.router.core import Identity, Router
from replkernel.router.driver import Driver
from replkernel.router.fleet import Fleet
from replkernel.router.heartbeat import start_heartbeat
from replkernel.router.kernelinfo import kernel_info
from replkernel.router.log import RouterLog, show
from replkernel.router.parent import LAUNCHER_PID, LauncherWatch
from replkernel.router.placement import Placement
from replkernel.router.search import Search
from replkernel.router.wire import Builder, ConnectionKeyError, Gate, Signer
from replkernel.scheduler_address import scheduler_trouble

EXIT_CONNECTION_FILE = 1
EXIT_PORT_IN_USE = 2
_NOT_FOR_REPLICAS = ("JPY_PARENT_PID", "JPY_INTERRUPT_EVENT", "IPY_INTERRUPT_EVENT", LAUNCHER_PID)
_KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def find_kernel_id(file: ConnectionFile, env: Mapping[str, str]) -> KernelId:
    """Return the kernel's id: the launcher's, the one in the file's name, or one made of its key."""
    match = re.fullmatch(r"kernel-(.+)\.json", file.path.name)
    for found in (env.get("KERNEL_ID", ""), match.group(1) if match else ""):
        if _KERNEL_ID.fullmatch(found):
            return KernelId(found)
    return KernelId(
        str(uuid.uuid5(uuid.NAMESPACE_OID, f"{file.path}:{hashlib.sha256(file.key).hexdigest()}"))
    )


def _spec(
    file: ConnectionFile,
    settings: configuration.Settings,
    env: Mapping[str, str],
    kernel_id: KernelId,
    extra: tuple[str, ...],
) -> KernelSpec:
    return KernelSpec(
        kernel_id=kernel_id,
        incarnation=uuid.uuid4().hex,
        key=file.key.decode(),
        signature_scheme=file.signature_scheme,
        python=sys.executable,
        env={name: value for name, value in env.items() if name not in _NOT_FOR_REPLICAS},
        cwd=os.getcwd(),
        store_url=settings.store_url,
        replicas=settings.replicas,
        durable=settings.durable,
        inline_bytes_max=settings.inline_bytes_max,
        argv_extra=extra,
        session_id=env.get("JPY_SESSION_NAME", ""),
        connection_file=str(file.path),
    )


def _serve(
    file: ConnectionFile, ports: Ports, signer: Signer, extra: tuple[str, ...], begun: Start | None
) -> int:
    env = dict(os.environ)
    kernel_id = find_kernel_id(file, env)
    log = RouterLog(configuration.data_dir(env) / "logs" / f"router-{kernel_id}.log")
    fault: Fault | None = None
    try:
        settings = configuration.read_settings(env)
        hosts = tuple(HostName(name) for name in settings.hosts or (configuration.host_name(env),))
    except SettingError as error:
        settings, hosts = configuration.Settings(), ()
        fault = Fault("SettingError", str(error))
        log.write(str(error), shown=True)
    spec = _spec(file, settings, env, kernel_id, extra)
    key_digest = hashlib.sha256(file.key).hexdigest()
    fleet = Fleet(spec, hosts, key_digest, os.getpid(), secrets.token_urlsafe(32), time.monotonic())
    fleet.fault = fault
    router = Router(
        fleet,
        Placement(settings.executor, random.SystemRandom()),
        Identity(kernel_info(), dict(ports.numbers)),
    )
    builder = Builder(signer, env.get("USER", "username"))
    launcher = LauncherWatch(env, settings.launcher_grace_s)
    search = Search(env, begun)
    if not hosts:
        search.close()
    driver = Driver(router, ports, Gate(signer), builder, log, launcher, search, env)
    if settings.scheduler_url:
        driver.look_into(partial(scheduler_trouble, settings.scheduler_url, env))
    return driver.run()


def serve(name: str, extra: tuple[str, ...], begun: Start | None) -> int:
    """Run the router of the connection file `name`; return 0, or 1 or 2 when the file or a port is no good.

    `extra` are options for the kernel processes; `begun` is an agent that is starting already.
    """
    try:
        file = read_connection_file(find_connection_file(name, os.environ))
        signer = Signer(file.key, file.signature_scheme)
        ports = Ports(file)
    except (ConnectionFileError, ConnectionKeyError) as error:
        show(str(error))
        return EXIT_CONNECTION_FILE
    except PortInUseError as error:
        show(str(error))
        return EXIT_PORT_IN_USE
    start_heartbeat(ports.give_heartbeat())
    return _serve(file, ports, signer, extra, begun)
