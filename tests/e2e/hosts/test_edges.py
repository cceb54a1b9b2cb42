"""Machines at the edge of what works: a page on another machine, a range of ports that is too small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.hosts.capture import Capture
from tests.e2e.hosts.certificate import make_certificate
from tests.e2e.hosts.machine import wait_until
from tests.e2e.hosts.site import ADDRESSES, LAB, VAULT, Site, where
from tests.support.lab import Server

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

CODE, OUTPUT = "mark_of_the_code_81", "mark-of-the-output-82"


def test_a_page_on_another_machine_has_its_kernel_behind_the_servers_certificate(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path / "tls", ADDRESSES[LAB])
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    site.env["SSL_CERT_FILE"] = str(certificate)
    capture = Capture()
    site.wire.tap(capture)
    site.server = Server(f"https://{ADDRESSES[LAB]}:8888/", site.server.token, site.server.log)
    options = (f"--ip={ADDRESSES[LAB]}", f"--certfile={certificate}", f"--keyfile={key}")
    site.start_server(*options, executor="rotate")
    kernel = site.open_notebook()
    with site.page(kernel, at=VAULT) as page:
        page.run(f"{CODE} = 1")
        assert {where(page) for _ in range(3)} <= set(site.hosts)
        assert page.run(f"print('{OUTPUT}', {CODE})") == f"{OUTPUT} 1"
    assert frozenset((VAULT, LAB)) in {frozenset((flow[0], flow[2])) for flow in capture.streams()}
    for what in (CODE, OUTPUT, site.server.token, site.connection_key(kernel)):
        assert capture.seen(what.encode()) == [], what


def test_a_host_whose_ports_do_not_suffice_is_named_and_the_kernel_goes_on_without_it(
    make_site: Callable[..., Site],
) -> None:
    site, few = make_site(), "7700-7703"
    for host in site.hosts:
        site.start_agent(host, "--ports", few if host == "gpu3" else "7700-7799", "--port", "7700")
    site.start_server(executor="rotate")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        assert {where(page) for _ in range(3)} <= {"gpu1", "gpu2"}
        wait_until(lambda: len(site.homes(kernel)) == 2, 60, "two replicas")
        assert page.run("kept = 1; print(kept)") == "1"

        def told() -> bool:
            said = site.server.log.read_text()
            return "on host gpu3" in said and few in said and "set REPLKERNEL_PORTS" in said

        wait_until(told, 60, "the sentence that names the host, its ports and the setting")
