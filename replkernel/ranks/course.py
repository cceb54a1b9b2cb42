"""The course of a cell on several hosts, from its wish to its end. Pure.

Laws: no process starts before launchers are there on all hosts; when one process, launcher or lease is lost,
all are ended, and the cell says which it was. The first that fails is named: the others fail of it. A host
is unsure until its launcher has said that all processes there are over, or all have ended.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel.leasing.request import seconds_in_words

START_S = 60.0
"""Launchers come within this, once the GPUs are there."""
END_S = 10.0
"""Processes that are told to end are waited for so long."""


class Leased(msgspec.Struct, frozen=True):
    """The scheduler has granted GPUs on these hosts, so many on each; rank 0 is on the first."""

    hosts: tuple[str, ...]
    gpus: int
    leases: tuple[str, ...] = ()


class Waits(msgspec.Struct, frozen=True):
    """The scheduler has the cell wait."""

    place: int
    has: int
    estimate_s: float | None = None


class Refused(msgspec.Struct, frozen=True):
    """There are no GPUs for this cell, or none any more."""

    why: str


class LinkLost(msgspec.Struct, frozen=True):
    """The scheduler that has welcomed the cell cannot be reached; it is tried again."""

    why: str


class Came(msgspec.Struct, frozen=True):
    """A launcher that has proved itself."""

    peer: bytes
    host: str
    address: str
    port: int


class Gone(msgspec.Struct, frozen=True):
    """A launcher's connection is over."""

    peer: bytes


class Emptied(msgspec.Struct, frozen=True):
    """A launcher has ended all processes of its host."""

    peer: bytes


class RankEnded(msgspec.Struct, frozen=True):
    """A process is over."""

    rank: int
    code: int
    error: str = ""


class Gave(msgspec.Struct, frozen=True):
    """Rank 0 has given back what was wanted."""

    data: bytes


class Interrupted(msgspec.Struct, frozen=True):
    """The user interrupts the cell."""


class TimeCame(msgspec.Struct, frozen=True):
    """The deadline has come."""


Event: TypeAlias = (
    Leased | Waits | Refused | LinkLost | Came | Gone | Emptied | RankEnded | Gave | Interrupted | TimeCame
)


class Tell(msgspec.Struct, frozen=True):
    """Say something under the cell."""

    text: str


class BeginOn(msgspec.Struct, frozen=True):
    """Have a launcher start `count` processes from `rank` on, which meet at `address` and `port`."""

    peer: bytes
    rank: int
    count: int
    world: int
    address: str
    port: int


class StopOn(msgspec.Struct, frozen=True):
    """Have a launcher end all, also one that is not wanted."""

    peer: bytes


class Over(msgspec.Struct, frozen=True):
    """The cell is over: `error` is one sentence, empty if all went well; `data` is what came back."""

    error: str = ""
    data: bytes = b""


Effect: TypeAlias = Tell | BeginOn | StopOn | Over


class Course:
    """One cell on `hosts` hosts."""

    def __init__(self, hosts: int, *, gives_back: bool) -> None:
        """Begin with a wish; `gives_back`: rank 0 has something to give back."""
        self.hosts = hosts
        self.phase: Literal["waiting", "starting", "running", "ending", "over"] = "waiting"
        self._gives_back = gives_back
        self._leased: Leased | None = None
        self._here: dict[str, Came] = {}
        self._ended: dict[int, RankEnded] = {}
        self._unsure: set[str] = set()
        self._away = False
        self._data: bytes | None = None
        self._error = ""
        self._due: float | None = None

    def deadline(self) -> float | None:
        """Return when TimeCame is due."""
        return self._due

    def host_of(self, rank: int) -> str:
        """Return the host of a rank."""
        leased = self._leased
        return "" if leased is None else leased.hosts[min(rank // leased.gpus, len(leased.hosts) - 1)]

    def unsure(self) -> tuple[str, ...]:
        """Return the hosts on which processes may be that nobody has seen end."""
        return tuple(sorted(self._unsure))

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Return what follows from an event, in order."""
        if self.phase == "over":
            return [StopOn(event.peer)] if isinstance(event, Came) else []
        match event:
            case Waits() if self.phase == "waiting":
                self._away = False
                return [Tell(self._waits(event))]
            case LinkLost(why):
                return self._alone(why)
            case Leased() if self.phase == "waiting":
                self.phase, self._leased, self._due = "starting", event, now + START_S
                return self._begin(now)
            case Leased() if event != self._leased and self.phase in ("starting", "running"):
                return self._end("The scheduler has given this cell other GPUs: run it again.", now)
            case Refused(why):
                return self._end(why, now)
            case Came():
                return self._came(event, now)
            case Gone(peer):
                return self._gone(peer, now)
            case Emptied(peer):
                return self._emptied(peer, now)
            case RankEnded():
                return self._rank_ended(event, now)
            case Gave(data):
                self._data = data
            case Interrupted():
                return self._end("The cell was interrupted.", now)
            case TimeCame():
                return self._late(now)
        return []

    def _waits(self, event: Waits) -> str:
        place = "" if event.place == 1 else f" {event.place - 1} cells on several hosts are before it."
        place = " One cell on several hosts is before it." if event.place == 2 else place
        has = f" It has {event.has} of {self.hosts} hosts." if event.has else ""
        soon = (
            ""
            if event.estimate_s is None
            else f" The next is expected in {seconds_in_words(event.estimate_s)}."
        )
        return f"Waiting for GPUs on {self.hosts} hosts.{has}{place}{soon}"

    def _alone(self, why: str) -> list[Effect]:
        """Say once that the scheduler is away; a cell that runs does not need it meanwhile."""
        if self.phase != "waiting" or self._away:
            return []
        self._away = True
        return [Tell(f"The cell keeps its place while the scheduler is away. {why}")]

    def _came(self, event: Came, now: float) -> list[Effect]:
        wanted = self._leased is None or event.host in self._leased.hosts
        if self.phase not in ("waiting", "starting") or not wanted or event.host in self._here:
            return [StopOn(event.peer)]
        self._here[event.host] = event
        return self._begin(now)

    def _begin(self, now: float) -> list[Effect]:
        """Start all processes, once there is somebody on each host to do so."""
        leased = self._leased
        if leased is None or any(host not in self._here for host in leased.hosts):
            return []
        self.phase, self._due, self._unsure = "running", None, set(leased.hosts)
        first, world = self._here[leased.hosts[0]], leased.gpus * len(leased.hosts)
        return [
            BeginOn(self._here[host].peer, node * leased.gpus, leased.gpus, world, first.address, first.port)
            for node, host in enumerate(leased.hosts)
        ]

    def _host_at(self, peer: bytes) -> str | None:
        return next((host for host, came in self._here.items() if came.peer == peer), None)

    def _has_ended(self, host: str) -> bool:
        """Tell whether all processes of a host have ended."""
        leased = self._leased
        if leased is None or host not in leased.hosts:
            return False
        first = leased.hosts.index(host) * leased.gpus
        return all(rank in self._ended for rank in range(first, first + leased.gpus))

    def _emptied(self, peer: bytes, now: float) -> list[Effect]:
        host = self._host_at(peer)
        if host is None:
            return []
        self._unsure.discard(host)
        if self.phase == "ending" or self._has_ended(host):
            return []
        return self._end(
            f"Host {host} has ended its processes: its agent ends, or was told that its GPUs are not this "
            "cell's any more.",
            now,
        )

    def _gone(self, peer: bytes, now: float) -> list[Effect]:
        host = self._host_at(peer)
        if host is None:
            return []
        del self._here[host]
        if self.phase == "ending":
            return [] if self._here else self._finish()
        if self._has_ended(host):
            return []
        return self._end(
            f"Host {host} is gone, or its processes were killed with all that belongs to them.", now
        )

    def _rank_ended(self, event: RankEnded, now: float) -> list[Effect]:
        self._ended[event.rank] = event
        host = self.host_of(event.rank)
        if self._has_ended(host):
            self._unsure.discard(host)
        if self.phase != "running":
            return []
        if event.code:
            how = (
                f"was ended by signal {-event.code}" if event.code < 0 else f"ended with status {event.code}"
            )
            said = f": {event.error}" if event.error else ""
            return self._end(f"Rank {event.rank} on host {self.host_of(event.rank)} {how}{said}", now)
        if event.rank == 0 and self._gives_back and self._data is None:  # It would have come before.
            return self._end(
                f"Rank 0 on host {self.host_of(0)} ended without giving back what --back names: let it "
                "come to the end of the cell, or leave by sys.exit().",
                now,
            )
        return self._done()

    def _done(self) -> list[Effect]:
        """End the cell if all processes have ended well."""
        leased = self._leased
        if self.phase != "running" or leased is None:
            return []
        if len(self._ended) < leased.gpus * len(leased.hosts):
            return []
        stops = [StopOn(came.peer) for came in self._here.values()]
        return [*stops, *self._finish()]

    def _end(self, why: str, now: float) -> list[Effect]:
        """End all that runs, because of this; what comes later is no reason any more."""
        if self.phase == "ending":
            return []
        self.phase, self._error, self._due = "ending", why, now + END_S
        stops: list[Effect] = [StopOn(came.peer) for came in self._here.values()]
        return stops or self._finish()

    def _late(self, now: float) -> list[Effect]:
        if self._due is None or now < self._due:
            return []
        if self.phase == "ending":
            return self._finish()
        assert self._leased is not None
        missing = ", ".join(host for host in self._leased.hosts if host not in self._here)
        return self._end(
            f"No launcher has come from {missing} within {START_S:g} s: look into the agent's log there, and "
            "whether this host can be reached from it.",
            now,
        )

    def _finish(self) -> list[Effect]:
        self.phase, self._due = "over", None
        return [Over(self._error, b"" if self._error else self._data or b"")]
