"""The command `replkernel`: its words and its help. Each verb lives in a file of its own, imported when used.

Law: exit code 0 when all is well, 1 when something is wrong, 2 for a command that makes no sense; no
expected fault ends in a traceback.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from replkernel import __version__
from replkernel.cli import booking_verb, carrying, job_verbs
from replkernel.cli.programs import KUBERNETES_DOCTOR, PROGRAMS, become
from replkernel.errors import ReplkernelError

DESCRIPTION = """\
replkernel is a Jupyter kernel whose state is replicated: choose "Python 3 (replicated)" in any Jupyter
front end, and a cell may run on any of the kernel's replicas. This command looks after what is around it.
"""

USAGE = """\
Say which kernel has how much in the object store (REPLKERNEL_STORE), the largest first:

  IN USE          what its variables need now, or one of its checkpoints; as of its last marks, which are
                  up to ten minutes old
  SHARED          what other kernels need as well of that: equal data is stored once
  SUPERSEDED      what it made and needs no more: goes by itself, within seconds in a store of files, and
                  within minutes in S3 and Redis
  IN CACHE HERE   what the caches of this user's agents on this machine have of it; beside a store of files
                  on the same disk these are the same bytes, counted once by `du`

What is nobody's was left by a host that died, or is about to be named by a cell. To make room, delete
variables (`del`), or end notebooks (`replkernel forget` for one that hibernates).
"""

FAKE_GPUS_MAX = 64

PASSED_ON = (
    (
        "scheduler",
        "run the GPU scheduler as a service",
        "Run the scheduler as a REST service on loopback.",
    ),
    (
        "simulate",
        "play recorded work with scheduling policies: waits, GPU-hours, cost",
        "Play traces on the scheduler's core. See `replkernel simulate --help`.",
    ),
    (
        "capacity",
        "the fewest hosts with which users wait no longer than you want",
        "Play a trace on more and fewer hosts. See `replkernel capacity --help`.",
    ),
    (
        "workload",
        "make sessions of people who train models, as a trace for simulate",
        "Make a trace from quantiles. See `replkernel workload --help`.",
    ),
    (
        "loadtest",
        "play sessions of people against a live server, and report what they feel",
        "Play a session pattern through the Jupyter Server API. See `replkernel loadtest --help`.",
    ),
    (
        "mcp",
        "let an agent use notebooks' kernels, by the Model Context Protocol",
        "Offer a Jupyter Server's notebooks to an agent. See `replkernel mcp --help`.",
    ),
)
"""Commands that read their own arguments: name, what they do, and in a sentence."""

EPILOG = """\
Start here:
  replkernel doctor          is everything installed and reachable, and if not, what to do
  jupyter lab                then choose "Python 3 (replicated)" in the launcher
  replkernel status          which kernels run, on which hosts, and whether their state is replicated
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser for the whole command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "replkernel", description=DESCRIPTION, epilog=EPILOG, formatter_class=form
    )
    parser.add_argument("--version", action="version", version=f"replkernel {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    doctor = verbs.add_parser(
        "doctor",
        help="check the installation, the store, the scheduler and the agent",
        description="Check each part that a kernel needs, and say what to do about those that are not in "
        "order. The exit code is 1 if something is wrong.",
    )
    doctor.add_argument(
        "--kubernetes",
        nargs=argparse.REMAINDER,
        metavar="--namespace NAME --release NAME",
        help="look at a release of the Helm chart instead, by your kubeconfig",
    )
    _add_install(verbs)
    status = verbs.add_parser(
        "status",
        help="show hosts, kernels and leases",
        description="Show every host agent of this user with its kernels, replicas and GPU leases.",
    )
    status.add_argument("--json", action="store_true", help="write the whole document as JSON, for programs")
    follow = verbs.add_parser(
        "follow",
        help="tell an editor what a notebook's kernel does, as JSON, a line whenever something is new",
        description="For extensions of editors that start kernels themselves, as the one for VS Code in this "
        "project: cells, GPUs and replicas of the notebook's kernel. It ends when its standard input does.",
    )
    follow.add_argument("notebook", metavar="NOTEBOOK", help="the notebook's file")
    _add_agent(verbs)
    _add_kernel_verbs(verbs)
    carrying.add_verbs(verbs)
    _add_store(verbs)
    for name, what, description in PASSED_ON:
        passed_on = verbs.add_parser(name, help=what, add_help=False, description=description)
        passed_on.add_argument("rest", nargs=argparse.REMAINDER)
    _add_accounting(verbs)
    _add_draining(verbs)
    booking_verb.add_verb(verbs)
    job_verbs.add_verb(verbs)
    verbs.add_parser("version", help="print the version")
    return parser


def _add_install(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    install = verbs.add_parser(
        "install",
        help="put the kernelspec where front ends find it, with the path of this Python",
        description="Front ends that start a kernel's command themselves, as VS Code does, take the Python "
        "that it names; in the kernelspec of the package that is whichever `python` comes first. Without an "
        "option: for all users of this machine.",
    )
    where = install.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user, from any environment")
    where.add_argument("--sys-prefix", action="store_true", help="in this Python environment")
    where.add_argument("--prefix", metavar="PATH", help="below this directory")
    install.add_argument("--name", default="replkernel", help="the kernelspec's name (default: %(default)s)")
    install.add_argument("--display-name", metavar="TEXT", default="", help="what front ends call it")


def _add_accounting(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    accounting = verbs.add_parser(
        "accounting",
        help="show what GPUs were used for, and what that saved",
        description=(
            "Ask the scheduler (REPLKERNEL_SCHEDULER_URL, else the one on this machine) what was leased. "
            "Without options: the sums of each user as a table. GPU-hours are those that were leased; "
            "'saved' is what holding the GPUs for the whole session would have cost on top. Where the "
            "scheduler has prices, 'cost' is what was charged."
        ),
        epilog=(
            "examples:\n"
            "  replkernel accounting                            who used how much, and what was saved\n"
            "  replkernel accounting --by kernel                the same for each kernel\n"
            "  replkernel accounting --by job                   what each job had of idle GPUs\n"
            "  replkernel accounting --by cluster               what hosts cost, and the margin (admins)\n"
            "  replkernel accounting --csv > cells.csv          a row for each cell, for a spreadsheet\n"
            "  replkernel accounting --json --since 2026-01-31  the cells since a day (UTC), for programs\n"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form = accounting.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="write CSV")
    form.add_argument("--json", action="store_true", help="write JSON")
    accounting.add_argument(
        "--by",
        choices=("cell", "kernel", "user", "job", "cluster"),
        help="what a row is about (default: user; with --csv, --json or --since: cell)",
    )
    accounting.add_argument(
        "--since", metavar="WHEN", default="", help="only cells that ended since this date or time (ISO 8601)"
    )


def _add_draining(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for verb, help_text, description in (
        (
            "drain",
            "have the scheduler lease nothing new on a host",
            (
                "Cells that run on the host's GPUs go on, and new ones get GPUs of other hosts, until it is "
                "undrained. Replicas of notebooks that use GPUs move to hosts that have none of theirs, now "
                "or when one comes; `replkernel status` tells which are still there, and why. For "
                "administrators of the scheduler (REPLKERNEL_SCHEDULER_URL, else the one on this machine)."
            ),
        ),
        ("undrain", "have it used again", "Let the scheduler lease GPUs of a host again that was drained."),
    ):
        parser = verbs.add_parser(verb, help=help_text, description=description)
        parser.add_argument("host", metavar="HOST", help="as `replkernel status` shows it")


def _add_kernel_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for verb, help_text, description in (
        (
            "hibernate",
            "hibernate a kernel: no process, all of its state in the store",
            "Stop a kernel's replicas once a checkpoint holds everything. The next cell resumes it.",
        ),
        (
            "recover",
            "go on from what is left of a kernel that has lost most of its hosts for good",
            (
                "Give up the replicas that cannot be reached, and go on from what a reachable one or the "
                "last checkpoint holds, whichever is newer. The next cell says which cells are lost, if any."
            ),
        ),
        (
            "forget",
            "delete all that a hibernated kernel has left",
            "Delete record, checkpoints and data of a kernel that hibernates. There is no way back.",
        ),
    ):
        parser = verbs.add_parser(verb, help=help_text, description=description)
        parser.add_argument("kernel_id", metavar="KERNEL_ID", help="as `replkernel status` shows it")


def _add_store(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    store = verbs.add_parser(
        "store",
        help="look after the object store",
        description="The object store (REPLKERNEL_STORE) holds what is too large for the log.",
    )
    acts = store.add_subparsers(dest="act", metavar="collect | usage", required=True)
    acts.add_parser(
        "collect",
        help="delete what no kernel has named for a day",
        description="Delete the chunks that no kernel has named for a day. Agents do so by themselves every "
        "few hours and when a kernel ends. It is safe at any time, whoever uses the store; if the mark of a "
        "kernel cannot be read, nothing is deleted.",
    )
    usage = acts.add_parser(
        "usage",
        help="say which kernel has how much in the store",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=USAGE,
    )
    usage.add_argument("--json", action="store_true", help="write all figures in bytes as JSON, for programs")


def _add_agent(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    agent = verbs.add_parser(
        "agent",
        help="run, list or stop the host agent, and tell what it measured",
        description="The host agent keeps this user's replicas on one host. Kernels start it when they need "
        "it, so you rarely have to. Without a word it runs in the foreground until Ctrl-C.",
    )
    agent.add_argument("--name", help="the host's name (default: this machine's, or REPLKERNEL_HOST_NAME)")
    agent.add_argument(
        "--as",
        dest="user",
        metavar="USER",
        help="as root: start this Unix user's agent, as that user, in the background, unless it is there",
    )
    agent.add_argument(
        "--fake-gpus",
        type=_fake_gpus,
        metavar="N",
        help="offer N simulated GPUs (0 to 64) to the scheduler, to try a cluster on a machine without any",
    )
    _add_reach(agent)
    acts = agent.add_subparsers(dest="act", metavar="[list | stop | phases]")
    acts.add_parser("list", help="list the agents of this user, alive or not")
    stop = acts.add_parser("stop", help="end an agent and every kernel on it; their state goes with them")
    stop.add_argument("host", nargs="?", help="the host's name (default: this machine's)")
    phases = acts.add_parser(
        "phases",
        help="write when its kernels computed and when they idled, as a trace",
        description="Write when kernels of a host computed and when they idled, each 5 s, as a trace in the "
        "Standard Workload Format: `replkernel agent phases > mine.swf`, then `replkernel simulate mine.swf "
        "--policy sq,m=2 --hosts 2x8`. A kernel is busy while it has more than a fifth of a core.",
    )
    phases.add_argument("host", nargs="?", help="the host's name (default: this machine's)")


def _add_reach(agent: argparse.ArgumentParser) -> None:
    reach = agent.add_argument_group("how other machines reach it (each is a setting, too)")
    for name, metavar, what in (
        (
            "bind",
            "IP",
            "the address of this machine to listen at (REPLKERNEL_BIND; 127.0.0.1: nobody else does)",
        ),
        ("advertise", "IP", "the address that others use, where it differs (REPLKERNEL_ADVERTISE)"),
        ("ports", "FIRST-LAST", "the TCP ports that may be used (REPLKERNEL_PORTS)"),
        ("port", "PORT", "the agent's own (REPLKERNEL_AGENT_PORT; 0: any of the ports)"),
    ):
        reach.add_argument(f"--{name}", metavar=metavar, help=what)


def _fake_gpus(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text) <= FAKE_GPUS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {FAKE_GPUS_MAX}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    parser = build_parser()
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0] in PROGRAMS:
        return become(PROGRAMS[given[0]], given[1:])
    if given[:2] == ["doctor", "--kubernetes"]:
        return become(KUBERNETES_DOCTOR, given[2:])
    options = parser.parse_args(given)
    try:
        if options.verb == "job":
            from replkernel.cli.jobs import run_job

            return run_job(options)
        return _dispatch(parser, options)
    except ReplkernelError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # The reader (`| head`) has gone: nothing is left to say, and nobody to hear it.
        return 0
    except KeyboardInterrupt:
        return 130


def _tell(options: argparse.Namespace) -> int:
    if options.verb == "follow":
        from replkernel.cli.follow import run_follow

        return run_follow(options.notebook)
    from replkernel.cli.status import run_status

    return run_status(as_json=options.json)


def _of_cluster(options: argparse.Namespace) -> int:
    """Do what concerns the scheduler's cluster."""
    if options.verb == "book":
        from replkernel.cli.booking import run_booking

        return run_booking(options)
    from replkernel.cli.draining import run_draining

    return run_draining(options.host, drained=options.verb == "drain")


def _dispatch(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    match options.verb:
        case "doctor":
            from replkernel.cli.doctor import run_doctor

            return run_doctor()
        case "install":
            from replkernel.cli.install import run_install

            prefix = sys.prefix if options.sys_prefix else options.prefix
            return run_install(options.name, options.display_name, prefix, user=options.user)
        case "status" | "follow":
            return _tell(options)
        case "agent":
            from replkernel.cli.agent import run_agent

            names = {"bind": "BIND", "advertise": "ADVERTISE", "ports": "PORTS", "port": "AGENT_PORT"}
            given = {f"REPLKERNEL_{name}": getattr(options, option) for option, name in names.items()}
            reach = {variable: text for variable, text in given.items() if text is not None}
            host = getattr(options, "host", None)
            return run_agent(options.act, options.name, host, options.fake_gpus, reach, options.user)
        case "hibernate" | "recover" | "forget":
            from replkernel.cli import kernels

            run = {"hibernate": kernels.run_hibernate, "recover": kernels.run_recover}
            return run.get(options.verb, kernels.run_forget)(options.kernel_id)
        case "fork":
            return carrying.run_fork(options)
        case "export":
            return carrying.run_export(options)
        case "inspect":
            return carrying.run_inspect(options)
        case "import":
            return carrying.run_import(options)
        case "store":
            from replkernel.cli import store

            return store.run_usage(as_json=options.json) if options.act == "usage" else store.run_collect()
        case "accounting":
            from replkernel.cli.accounting import run_accounting

            form = "csv" if options.csv else "json" if options.json else "table"
            return run_accounting(form, options.by, options.since)
        case "book" | "drain" | "undrain":
            return _of_cluster(options)
        case "version":
            print(f"replkernel {__version__}")
            return 0
    parser.print_help()
    return 2
