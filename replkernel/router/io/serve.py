"""Put one kernel's router together and run it.

Law: the ports are bound before anything else is looked at, so that clients never find them closed; what
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

import msgspec

from replkernel import settings as configuration
from replkernel.agent.io.start import Start
from replkernel.errors import ConnectionFileError, PortInUseError, SettingError
from replkernel.hosts.places import hosts_are_chosen
from replkernel.launch.chosen_gpus import CHOSEN, chosen_by
from replkernel.launch.kernel_record import KernelRecord, is_kernel_id
from replkernel.launch.unknown_settings import misspelt, unknown_settings
from replkernel.leasing.asking import scheduler_trouble
from replkernel.leasing.choosing import choose_hosts
from replkernel.leasing.finding import find_scheduler
from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wanted import wanted_by
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.message_session import message_session
from replkernel.records import HostName, KernelId
from replkernel.router.core.answers import Fault
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.hibernation import HIBERNATED_LINGER_S
from replkernel.router.core.journal import Journal
from replkernel.router.core.leases import Leases, Linger
from replkernel.router.core.placement import Placement
from replkernel.router.core.replay import Audience
from replkernel.router.core.router import Identity, Rest, Router
from replkernel.router.core.wire import Builder, ConnectionKeyError, Gate, Signer
from replkernel.router.io.client_output import ClientOutput
from replkernel.router.io.connection import ConnectionFile, Ports, find_connection_file, read_connection_file
from replkernel.router.io.driver import Driver
from replkernel.router.io.heartbeat import start_heartbeat
from replkernel.router.io.journal_disk import JournalDisk
from replkernel.router.io.kernelinfo import kernel_info
from replkernel.router.io.log import RouterLog, show
from replkernel.router.io.own_record import OwnRecord, RouterLives, find_record, new_record
from replkernel.router.io.parent import LAUNCHER_PID, LAUNCHER_RETURNS, LauncherWatch
from replkernel.router.io.polling import SocketPoll
from replkernel.router.io.search import Search
from replkernel.router.io.takeover import Takeover

EXIT_CONNECTION_FILE = 1
EXIT_PORT_IN_USE = 2
EXIT_SERVED_ALREADY = 3
_NOT_FOR_REPLICAS = (
    CHOSEN,
    "JPY_PARENT_PID",
    "JPY_INTERRUPT_EVENT",
    "IPY_INTERRUPT_EVENT",
    LAUNCHER_PID,
    LAUNCHER_RETURNS,
)


def find_kernel_id(file: ConnectionFile, env: Mapping[str, str]) -> KernelId:
    """Return the kernel's id: the launcher's, the one in the file's name, or one made of its key."""
    match = re.fullmatch(r"kernel-(.+)\.json", file.path.name)
    for found in (env.get("KERNEL_ID", ""), match.group(1) if match else ""):
        if is_kernel_id(found):
            return KernelId(found)
    return KernelId(
        str(uuid.uuid5(uuid.NAMESPACE_OID, f"{file.path}:{hashlib.sha256(file.key).hexdigest()}"))
    )


def _spec(
    file: ConnectionFile,
    settings: configuration.Settings,
    env: Mapping[str, str],
    record: KernelRecord,
    extra: tuple[str, ...],
    *,
    unsealed: bool,
) -> KernelSpec:
    return KernelSpec(
        kernel_id=record.kernel_id,
        incarnation=record.incarnation,
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
        unsealed=unsealed,
    )


def _fleet(spec: KernelSpec, hosts: tuple[HostName, ...], key: bytes, found: KernelRecord | None) -> Fleet:
    """Return the kernel's replicas: those of the record that was `found`, or new ones."""
    return Fleet(
        spec,
        hosts,
        hashlib.sha256(key).hexdigest(),
        os.getpid(),
        secrets.token_urlsafe(32),
        time.monotonic(),
        resuming=found is not None,
        asleep=found is not None and found.state == "hibernated",
        guests=() if found is None else [HostName(name) for name in found.guests],
    )


def _leases(
    kernel_id: KernelId,
    own: OwnRecord,
    settings: configuration.Settings,
    env: Mapping[str, str],
    wanted: GpuRequest | None,
) -> Leases:
    """Return the kernel's leases; `wanted` is what the notebook asks for where it has begun."""
    governed = bool(find_scheduler(env)[0])
    return Leases(
        kernel_id,
        own.gpus,
        governed=governed,
        hides=settings.hides_gpus(),
        moves=settings.replicas > 1,
        linger=Linger(settings.gpu_linger_s, settings.gpu_linger_gb * 2**30),
        limits_vram=settings.vram == "limited",
        notebook=env.get("JPY_SESSION_NAME", ""),
        request=wanted,
        tells=governed and (bool(wanted) or hosts_are_chosen(env)),
    )


def _serve(
    file: ConnectionFile, ports: Ports, signer: Signer, extra: tuple[str, ...], begun: Start | None
) -> int:
    began, env = time.time(), dict(os.environ)
    kernel_id = find_kernel_id(file, env)
    data_dir = configuration.data_dir(env)
    log = RouterLog(data_dir / "logs" / f"router-{kernel_id}.log")
    found = find_record(data_dir, kernel_id, file.key)
    record = new_record(file, ports.numbers, kernel_id, found, chosen_by(env))
    fault: Fault | None = None
    told, unsealed, wanted = [""], False, None
    try:
        settings = configuration.read_settings(env)
        wanted, told[0] = wanted_by(env)
        unsealed = configuration.reads_unsealed(env, sealed=record.sealed)
        names = settings.hosts or record.hosts or (configuration.host_name(env),)
        if hosts_are_chosen(env) and found is None:
            say = partial(log.write, shown=True)
            names, why = choose_hosts(kernel_id, settings.replicas, env, wanted, settings.place_wait_s, say)
            told.append(why)
            record = msgspec.structs.replace(record, hosts=names)
        hosts = tuple(HostName(name) for name in names)
    except SettingError as error:
        settings, hosts = configuration.Settings(), ()
        fault = Fault("SettingError", str(error))
        log.write(str(error), shown=True)
    fleet = _fleet(_spec(file, settings, env, record, extra, unsealed=unsealed), hosts, file.key, found)
    fleet.fault = fault
    launcher = LauncherWatch(env, settings.launcher_grace_s)
    own = OwnRecord(data_dir, record, partial(log.write, shown=True))
    leases = _leases(kernel_id, own, settings, env, wanted)
    router = Router(
        fleet,
        Placement(settings.executor, random.SystemRandom()),
        Identity(kernel_info(), dict(ports.numbers)),
        Rest(
            settings.hibernate_idle_s,
            settings.standby_idle_s,
            HIBERNATED_LINGER_S if launcher.returns else None,
            time.monotonic(),
        ),
        settings.host_lost_s,
        leases,
        None if found is None else found.move,
        settings.versions,
    )
    builder = Builder(signer, env.get("USER", "username"), message_session(kernel_id, record.incarnation))
    search = Search(env, begun)
    if not hosts:
        search.close()
    own.note("live" if found is None else found.state)
    poller = SocketPoll()
    gate = Gate(signer, 0.0 if found is None else began)
    audience = Audience(time.monotonic())
    journal = Journal(int(time.time() * 1_000_000))  # Versions grow from one router to the next, too.
    disk = JournalDisk(own.directory / "outputs", partial(log.write, shown=True))
    client_output = ClientOutput(ports, builder, journal, disk, audience, poller.used, kernel_id)
    left = Takeover(journal, disk, builder, audience, client_output).begin(gate, continues=found is not None)
    driver = Driver(
        router, ports, poller, gate, client_output, left, log, own, launcher, search, env, kernel_id
    )
    for sentence in filter(None, told):
        driver.look_into(partial(str, sentence))
    if unknown_settings(env):
        driver.look_into(partial(misspelt, env))
    if settings.scheduler_url:
        driver.look_into(partial(scheduler_trouble, settings.scheduler_url, env))
    code = driver.run()
    own.close()
    return code


def serve(name: str, extra: tuple[str, ...], begun: Start | None, given: Mapping[str, int]) -> int:
    """Run the router of the connection file `name`; return 0, or 1 or 2 when the file or a port is no good.

    `extra` are options for the kernel processes; `begun` is an agent that is starting already; `given` are
    descriptors of ports that the launcher has bound.
    """
    try:
        file = read_connection_file(find_connection_file(name, os.environ))
        signer = Signer(file.key, file.signature_scheme)
        ports = Ports(file, given)
    except (ConnectionFileError, ConnectionKeyError) as error:
        show(str(error))
        return EXIT_CONNECTION_FILE
    except PortInUseError as error:
        show(str(error))
        return EXIT_PORT_IN_USE
    start_heartbeat(ports.give_heartbeat())
    try:
        return _serve(file, ports, signer, extra, begun)
    except RouterLives as error:
        show(str(error))
        ports.close(linger_ms=0)
        return EXIT_SERVED_ALREADY
