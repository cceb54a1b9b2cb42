"""What machines say to each other: sealed, also on a slow and lossy network; leases come over TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.hosts.capture import Capture
from tests.e2e.hosts.certificate import make_certificate
from tests.e2e.hosts.machine import Machine, wait_until
from tests.e2e.hosts.site import ADDRESSES, HOSTS, LAB, STORE_PORT, VAULT, Site, run_everywhere, where
from tests.support.s3_server import SECRET_KEY
from tests.support.server_life import Page

pytestmark = pytest.mark.timeout(180)

TLS_HANDSHAKE = b"\x16\x03"
CODE, OUTPUT, STATE = "mark_of_the_code_71", "mark-of-the-output-72", "mark-of-the-state-73"


def with_scheduler(site: Site, tmp_path: Path) -> None:
    """Start a scheduler on its own machine, behind TLS, and have everybody know of it."""
    certificate, key = make_certificate(tmp_path / "tls", ADDRESSES[VAULT])
    command = ["replkernel", "scheduler", "--ip", ADDRESSES[VAULT], "--port", "8797"]
    command += ["--certfile", str(certificate), "--keyfile", str(key)]
    site.env["SSL_CERT_FILE"] = str(certificate)
    log = site.logs / "scheduler.log"
    site.machines[VAULT].run(command, site.env, log)
    wait_until(lambda: log.exists() and "https://" in log.read_text(), 60, "the scheduler listens")
    site.env["REPLKERNEL_SCHEDULER_URL"] = f"https://{ADDRESSES[VAULT]}:8797"


def say_in_clear(source: Machine, target: str, what: bytes) -> None:
    def say() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.sendto(what, (target, 9))

    source.inside(say)


def use(page: Page) -> None:
    """Have marks in code, output and state, on whatever machines there are."""
    page.run(f"{CODE} = ['{STATE}'] * 3; print('{OUTPUT[:14]}' + '{OUTPUT[14:]}')")
    for turn in range(3):
        assert OUTPUT in page.run(f"{CODE}.append({turn}); print('{OUTPUT}', len({CODE}))")


def test_nobody_on_the_wire_reads_code_output_state_or_secrets(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    site = make_site()
    capture = Capture()
    site.wire.tap(capture)
    with_scheduler(site, tmp_path)
    site.start_agents("--fake-gpus", "1")
    site.start_server(executor="rotate")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        use(page)
        assert page.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'] != '')", gpus=1) == "True"

    def heard() -> bool:
        say_in_clear(site.machines["gpu1"], ADDRESSES[LAB], b"a word in clear")  # UDP: it may be lost.
        return bool(capture.seen(b"a word in clear"))

    wait_until(heard, 60, "the capture hears what is said in clear")
    secrets = [
        *(site.agent_file(host)["token"] for host in HOSTS[:3]),
        *(site.agent_file(host)["far_endpoint"].rpartition("/")[2] for host in HOSTS[:3]),
        site.data_of(LAB).joinpath("replkernel", "scheduler", "token").read_text().strip(),
        site.connection_key(kernel),
    ]
    pairs = {frozenset((LAB, host)) for host in HOSTS[:3]}
    pairs |= {frozenset(("gpu1", "gpu2")), frozenset(("gpu1", VAULT))}

    def greetings() -> list[bytes]:
        streams = capture.streams().values()
        return [stream for stream in streams if stream.startswith(b"\xff\0\0\0") and len(stream) > 64]

    # Two replicas are enough for a cell: the third may join later.
    wait_until(
        lambda: pairs <= {frozenset((flow[0], flow[2])) for flow in capture.streams()}, 60, "each pair talks"
    )
    wait_until(lambda: len(greetings()) >= 2 * 3 * 6, 60, "agent and five channels, both ways")
    assert all(greeting[12:32].rstrip(b"\0") == b"CURVE" for greeting in greetings())
    for what in (CODE, OUTPUT, STATE, "mark_of", "mark-of", *secrets):
        assert len(what) > 6
        assert capture.seen(what.encode()) == [], what


@pytest.mark.slow
def test_nobody_on_the_wire_reads_what_goes_to_a_store_behind_tls(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    site = make_site(shared=False)
    capture = Capture()
    site.wire.tap(capture)
    site.start_store(make_certificate(tmp_path / "tls", ADDRESSES[VAULT]))
    site.start_agents()
    site.start_server(executor="rotate", durable="before_reply")
    with site.page(site.open_notebook()) as page:
        page.run(f"import os; {CODE} = bytearray(os.urandom(3_000_000) + b'{STATE}' + os.urandom(1000))")
        run_everywhere(page, site.hosts)
        hosts = set()
        for turn in range(3):
            change = f"{CODE}[{turn}] = 0; print(len({CODE}), {CODE}.count(b'{STATE}'))"
            assert page.run(change) == f"{3_001_000 + len(STATE)} 1"
            hosts.add(where(page))
    assert len(hosts) == 3
    for what in (CODE, STATE, SECRET_KEY):
        assert capture.seen(what.encode()) == [], what
    stored = {flow: said for flow, said in capture.streams().items() if STORE_PORT in (flow[1], flow[3])}
    assert {VAULT, *site.hosts} <= {flow[0] for flow in stored}
    assert sum(map(len, stored.values())) > 2 * 3_000_000, "stored by one, read by others"
    assert {flow: said[:80] for flow, said in stored.items() if not said.startswith(TLS_HANDSHAKE)} == {}


def test_the_capture_hears_a_connection_whose_count_starts_anew() -> None:
    capture = Capture()
    for place, said in ((2**32 - 3, b"one"), (3, b"three"), (0, b"two")):
        header = bytes(9) + b"\x06" + bytes(10)
        ports = (40_000).to_bytes(2, "big") + STORE_PORT.to_bytes(2, "big")
        packet = (
            b"\x45" + header[1:] + ports + place.to_bytes(4, "big") + bytes(4) + b"\x50" + bytes(7) + said
        )
        capture("10.0.0.1", "10.0.0.2", packet)
    assert list(capture.streams().values()) == [b"onetwothree"]


def test_whoever_does_not_know_a_key_is_not_answered(site: Site) -> None:
    capture = Capture()
    site.wire.tap(capture)
    place, _, _ = site.agent_file("gpu1")["far_endpoint"].removeprefix("curve://").rpartition("/")

    def try_it() -> bytes:
        import zmq

        with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(f"tcp://{place}")
            stranger.send(b"\x81\xa4type\xacRouterHello")
            return stranger.recv() if stranger.poll(1500) else b""

    assert site.machines["gpu2"].inside(try_it) == b""


@pytest.mark.slow
def test_notebooks_live_on_a_slow_and_lossy_network(make_site: Callable[..., Site], tmp_path: Path) -> None:
    site = make_site(HOSTS)
    with_scheduler(site, tmp_path)
    site.slow_down(0.005, 0.01)
    site.start_agents("--fake-gpus", "1")
    site.start_server(executor="rotate", durable="before_reply", host_lost_s="3")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        use(page)
        assert page.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'] != '')", gpus=1) == "True"
        wait_until(lambda: set(site.homes(kernel).values()) == set(HOSTS[:3]), 60, "three replicas")
        said = page.run("%replkernel migrate gpu4", within_s=60)
        wait_until(lambda: "gpu4" in site.homes(kernel).values(), 60, f"a replica has moved: {said}")
        assert page.run(f"print(len({CODE}))").splitlines()[-1] == "6"
        site.machines["gpu4"].crash()
        for _ in HOSTS:  # The cell whose turn it was on the machine that is gone ends with that.
            page.answer(page.send("pass"), 60)
        assert page.run(f"print(len({CODE}))", within_s=60).splitlines()[-1] == "6"
