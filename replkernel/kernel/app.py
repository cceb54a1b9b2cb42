"""The application of a kernel process: ipykernel's, listening for its router instead of for clients.

Owns how the process differs from `ipykernel_launcher`: connection from memory, no heartbeat (the router
answers that), no parent poller, and the replica's parts joined to the kernel before it takes messages.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import atexit
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, cast

import zmq
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.session import Session
from traitlets import DottedObjectName, Type

from replkernel.hosts.far_sockets import FarListener
from replkernel.kernel.birth import Birth
from replkernel.kernel.cells import cell_directory, name_cells_by
from replkernel.kernel.comm_pins import comm_pins, shown_pins
from replkernel.kernel.direct import DirectChannel
from replkernel.kernel.early_chunks import EarlyChunks
from replkernel.kernel.execution import ProcessState
from replkernel.kernel.gpu_magics import add_gpu_magics
from replkernel.kernel.history_answers import answer_history
from replkernel.kernel.install_magics import add_install_magics
from replkernel.kernel.job_magics import add_job_magics
from replkernel.kernel.kernel import ReplicatedKernel
from replkernel.kernel.kill_order import STANDBY, KillOrder
from replkernel.kernel.leased_gpus import CUDA_NUMBER
from replkernel.kernel.link import ROUTER_EVENTS, AgentLink
from replkernel.kernel.magics import ReplkernelMagics
from replkernel.kernel.output import OutputThread
from replkernel.kernel.own_names import SHELL_NAMES
from replkernel.kernel.prompts import PromptsPart
from replkernel.kernel.replica import Replica
from replkernel.kernel.variable_answers import answer_variables
from replkernel.objects.cache import BlobCache
from replkernel.objects.room import room_of
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.message_session import message_session
from replkernel.records import Pin, Seq
from replkernel.settings import read_settings
from replkernel.state.names import Names
from replkernel.state.process.own_threads import is_own, marked
from replkernel.state.process.parts import Baseline, process_pins, running_pins, settle, troubles
from replkernel.state.state_capture import StateCapture

CHANNELS = ("shell", "iopub", "stdin", "hb", "control")
"""The channels in the order of their socket numbers, 1 to 5."""
DIRECT_NUMBER = len(CHANNELS) + 1
CHILDREN_NUMBER = DIRECT_NUMBER + 1
"""What forked children print comes here."""

OUTPUT_MESSAGES_MAX = 100_000
"""So many messages of output wait for the router to take them; ZMQ drops what comes beyond."""

JUPYTERS_THREADS = (
    "IPythonHistorySavingThread",
    "IOPub",
    "Control",
    "Shell channel",
    "Heartbeat",
)


class ReplicaSession(Session):
    """A session that all replicas of a kernel speak under; the ids of its messages are this process's."""

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._mark = os.urandom(4).hex()

    @property
    def msg_id(self) -> str:
        """Return the id of the next message; several hosts may have processes of one number."""
        self.message_count += 1
        return f"{self.session}_{self._mark}_{self.message_count}"


class ReplicaApp(IPKernelApp):
    """IPKernelApp made from a birth instead of a command line and a connection file."""

    kernel_class: Any = Type(ReplicatedKernel, klass="ipykernel.kernelbase.Kernel")
    outstream_class = DottedObjectName(
        "replkernel.kernel.output.OutStream", allow_none=True, help="The importstring of the output streams."
    ).tag(config=True)

    birth: Birth
    link: AgentLink | None = None
    _direct: DirectChannel | None = None
    _far_listener: FarListener | None = None
    _router_monitor: Any = None

    def _session_default(self) -> Session:
        """Speak under the session of the kernel's incarnation, as the router and the other replicas do."""
        spec = self.birth.spec
        return ReplicaSession(parent=self, session=message_session(spec.kernel_id, spec.incarnation))

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._far_endpoints: dict[str, str] = {}

    def init_connection_file(self) -> None:
        """Take the connection from the birth; clients are shown the router's connection file."""
        spec = self.birth.spec
        name = spec.connection_file or f"kernel-{spec.kernel_id}.json"
        self.connection_file = name
        if os.path.isabs(name):
            self.connection_dir = str(Path(name).parent)
        self.transport, self.ip = "ipc", self.birth.ipc_base
        for number, channel in enumerate(CHANNELS, start=1):
            setattr(self, f"{channel}_port", number)
        self.session.key = spec.key.encode()
        self.session.signature_scheme = spec.signature_scheme

    def write_connection_file(self, **kwargs: object) -> None:
        """Write nothing: the router's connection file is not ours."""

    def init_poller(self) -> None:
        """Poll no parent: the agent's life is not the kernel's."""

    def init_heartbeat(self) -> None:
        """Answer no heartbeats: the router does."""

    def log_connection_info(self) -> None:
        """Keep the channels' numbers; nobody reads them on a terminal."""
        self._ports = {channel: getattr(self, f"{channel}_port") for channel in CHANNELS}

    def init_sockets(self) -> None:
        """Bind the channels, over whatever a process that had their names before left behind."""
        for number in range(1, CHILDREN_NUMBER + 1):
            Path(f"{self.birth.ipc_base}-{number}").unlink(missing_ok=True)
        if self.birth.reach is not None:
            self._far_listener = FarListener(self.birth.reach)
        super().init_sockets()
        context: Any = self.context
        near = f"ipc://{self.birth.ipc_base}-{DIRECT_NUMBER}"
        self._direct = DirectChannel(context, near, self._far_listener)
        if self._far_listener is not None:
            marked(self._far_listener.guard())
        atexit.register(self.cleanup_ipc_files)

    def _bind_socket(self, s: zmq.Socket[Any], port: int) -> int:
        """Bind a channel for this machine, and for others where there are some."""
        number: int = super()._bind_socket(s, port)
        if self._far_listener is not None:
            self._far_endpoints[CHANNELS[number - 1]] = self._far_listener.open(s)
        return number

    def cleanup_ipc_files(self) -> None:
        """Remove the sockets' files."""
        super().cleanup_ipc_files()
        for number in (DIRECT_NUMBER, CHILDREN_NUMBER, CUDA_NUMBER):
            Path(f"{self.birth.ipc_base}-{number}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close all sockets in an orderly way."""
        if self._direct is not None:
            self._direct.close()
        if self._far_listener is not None:
            self._far_listener.close()
        super().close()

    def init_control(self, context: object) -> None:
        """Bind the control channel, and watch whether a router is connected to it."""
        super().init_control(context)
        if self._far_listener is None:
            self._router_monitor = self.control_socket.get_monitor_socket(ROUTER_EVENTS)
        else:
            self._router_monitor = self._far_listener.follow(self.control_socket)

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """Bind the iopub channel with a queue that holds what a cell prints faster than the router reads."""
        publisher = context.socket(zmq.XPUB)
        publisher.linger = 1000
        publisher.sndhwm = OUTPUT_MESSAGES_MAX
        self.iopub_port = self._bind_socket(publisher, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = OutputThread(
            publisher, pipe=True, session=self.session, children=f"{self.birth.ipc_base}-{CHILDREN_NUMBER}"
        )
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_kernel(self) -> None:
        """Make the kernel; its class is ours whatever the configuration says."""
        if not issubclass(self.kernel_class, ReplicatedKernel):
            self.log.warning(
                "IPKernelApp.kernel_class=%r cannot be replicated and is ignored.", self.kernel_class
            )
            self.kernel_class = ReplicatedKernel
        name_cells_by(cell_directory(self.birth.spec.kernel_id, self.birth.spec.env))
        super().init_kernel()

    def init_gui_pylab(self) -> None:
        """Do what the inline backend does when it is imported, where it was before there was a shell."""
        inline: Any = sys.modules.get("matplotlib_inline.backend_inline")
        super().init_gui_pylab()
        if inline is not None:
            inline._enable_matplotlib_integration()

    def parse_command_line(self, argv: list[str] | None = None) -> None:
        """Read the options of the kernelspec; to make the parser that finds none takes 4 ms."""
        if argv:
            super().parse_command_line(argv)
        else:
            self.argv, self.extra_args = [], []

    def initialize(self, argv: object = None) -> None:
        """Initialize as stock does, then join the kernel to its replicas."""
        super().initialize(argv)
        self._join()

    def start(self) -> None:
        """Take messages until the end; the agent is greeted first."""
        if self.link is not None:
            self.link.start()
        try:
            super().start()
        finally:
            self._leave_quietly()

    def _leave_quietly(self) -> None:
        """Prepare the exit functions: nobody must run the finalizers of what lives on elsewhere."""
        shell = self.kernel.shell
        self.kernel.practice.end()
        # Its thread takes itself off the list of exit functions, which must not happen while that runs.
        shell.history_manager.stop_saving()
        if self.kernel.hands_over:
            self.kernel.replica.state.lives_on()
        if self.kernel.hands_over or not self.kernel.replica.holds_the_notebook:
            shell.history_manager.end_session()
            shell.history_manager.close()
            shell._atexit_once_called = True

    def _join(self) -> None:
        """Give the kernel its replica: state capture, process parts, the link to the agent."""
        birth, kernel, shell = self.birth, self.kernel, self.kernel.shell
        context: Any = self.context
        history = shell.history_manager
        history.kernel_id = birth.spec.kernel_id
        shell.compile.use(history.cells)
        names = Names(shell.user_ns)
        prompts = PromptsPart(shell, history, names)
        prompts.startup_names = self._startup_names()
        magics = ReplkernelMagics(shell, birth)
        shell.register_magics(magics)
        add_gpu_magics(shell)
        add_install_magics(shell)
        add_job_magics(shell)
        baseline = Baseline.take(shell, names)
        shell.compile.watch = history.cells.watch = baseline.patches
        cache = BlobCache(Path(birth.cache_dir))
        settings = read_settings(birth.spec.env)
        state = StateCapture(
            shell.user_ns,
            cache,
            birth.replica,
            inline_bytes_max=birth.spec.inline_bytes_max,
            ignore=cast("frozenset[str]", prompts.own_names),
            parts=[*baseline.parts, history.cells, prompts],
            room=room_of(birth.spec.store_url, birth.cache_dir, settings.disk_percent / 100),
            names=names,
        )
        prompts.awaits = state.awaits
        process = ProcessState(
            pins=partial(self._pins, baseline),
            running=partial(running_pins, replica=birth.replica, baseline=baseline, is_ours=self._is_ours),
            settle=partial(settle, baseline.parts),
            troubles=partial(troubles, baseline.parts),
        )
        replica = Replica(state, shell, prompts, process, kernel.wake, kernel.end)
        grace_s = settings.orphan_grace_s
        self.kernel.gpus.limit(settings)
        replica.paced(settings.ship_percent / 100)
        replica.travel.limits = settings.limits()
        info = kernel.kernel_info_content()
        replica.link = self.link = AgentLink(
            birth, context, self._endpoints(), info, replica, self._router_monitor, grace_s
        )
        cache.announce = EarlyChunks(self.link.chunks_written)
        cache.on_withdrawn = self.link.chunks_withdrawn
        atexit.register(self.link.stop)
        answer_history(kernel)
        answer_variables(kernel, replica.state.waiting_names)
        magics.replica = replica
        self._take_replica(replica)

    def _take_replica(self, replica: Replica) -> None:
        """Have kernel and replica know of each other."""
        kernel = self.kernel
        kernel.birth, kernel.connection_file = self.birth, self.abs_connection_file
        kernel.direct, kernel.interrupts = self._direct, replica.interrupts
        replica.take_place = KillOrder().take
        replica.take_place(STANDBY)
        if self._direct is not None:
            self._direct.expect_questions = kernel.expect_questions
        kernel.replica = replica
        replica.free_gpus, kernel.is_ours = kernel.free_gpus, self._is_ours
        replica.pause_cell = kernel.pause_cell
        replica.settle_soon = kernel.settle_soon
        replica.next_cell = kernel.next_cell
        replica.waits = replica.interrupts.next_waits = kernel.somebody_waits

    def _endpoints(self) -> Endpoints:
        """Return where a router finds the channels."""
        base = self.birth.ipc_base
        return Endpoints(
            **{
                name: f"ipc://{base}-{CHANNELS.index(name) + 1}"
                for name in ("shell", "control", "stdin", "iopub")
            },
            executions="" if self._direct is None else self._direct.endpoint,
            far=self._endpoints_from_afar(),
        )

    def _endpoints_from_afar(self) -> Endpoints | None:
        """Return where a router on another machine finds the channels."""
        if self._far_listener is None or self._direct is None:
            return None
        at = self._far_endpoints
        return Endpoints(at["shell"], at["control"], at["stdin"], at["iopub"], self._direct.far_endpoint)

    def _pins(self, baseline: Baseline, seq: Seq) -> tuple[Pin, ...]:
        """Return what ties the notebook to this process beside its variables."""
        replica = self.birth.replica
        manager = self.kernel.comm_manager
        pins = process_pins(seq, replica=replica, baseline=baseline, is_ours=self._is_ours)
        shown = shown_pins(manager.comms, replica, seq)
        return (*pins, *comm_pins(manager.targets, replica, seq), *shown)

    def _startup_names(self) -> tuple[str, ...]:
        return tuple(
            name for name in self.kernel.shell.user_ns_hidden if name not in SHELL_NAMES and name.strip("_")
        )

    def _is_ours(self, thread: threading.Thread) -> bool:
        """Tell whether the kernel itself started `thread`, or IPython did to read the pipes of ``%%bash``."""
        if (
            is_own(thread)
            or thread.name in JUPYTERS_THREADS
            or thread.name.startswith(("subshell-", "blob-cache"))
        ):
            return True
        scripts = self.kernel.shell.magics_manager.registry.get("ScriptMagics")
        loop = getattr(scripts, "event_loop", None)
        return loop is not None and getattr(thread.__dict__.get("_target"), "__self__", None) is loop


ReplicaApp.__name__ = IPKernelApp.__name__  # ``%config`` lists and finds it by this name.
