"""What crosses a notebook's proxy: signed with the kernel's key, if the front end's key vouches for it."""

from __future__ import annotations

import json

from replkernel.porter.crossing import across, kind_of, notebook_in, signed_frames
from replkernel.router.core.wire import DELIMITER, Signer

OUTER, INNER = Signer(b"outer", "hmac-sha256"), Signer(b"inner", "hmac-sha256")


def message(kind: str, content: dict[str, object], signer: Signer = OUTER) -> list[bytes]:
    signed = [json.dumps({"msg_type": kind}).encode(), b"{}", b"{}", json.dumps(content).encode()]
    return [b"who", DELIMITER, signer.sign(signed), *signed, b"a buffer"]


def test_a_message_is_signed_anew_and_else_stays_as_it_is() -> None:
    frames = message("execute_request", {"code": "1"})
    crossed = across(frames, OUTER, INNER)
    assert crossed is not None
    assert across(crossed, INNER, OUTER) == frames
    assert crossed[:2] + crossed[3:] == frames[:2] + frames[3:]


def test_a_message_without_the_senders_signature_stays_outside() -> None:
    frames = message("execute_request", {"code": "1"})
    assert across([*frames[:-2], b"{}", frames[-1]], OUTER, INNER) is None
    assert across(message("execute_request", {}, INNER), OUTER, INNER) is None
    assert across([b"who", DELIMITER, b""], OUTER, INNER) is None
    assert across([b"anything"], OUTER, INNER) is None


def test_a_notebook_is_named_by_an_execution_alone() -> None:
    content: dict[str, object] = {"code": '__vsc_ipynb_file__ = "/n.ipynb"'}
    assert notebook_in(message("execute_request", content)) == "/n.ipynb"
    assert notebook_in(message("inspect_request", content)) == ""
    assert notebook_in(message("execute_request", {"code": 3, "__vsc_ipynb_file__": 1})) == ""
    assert notebook_in([b"who"]) == ""
    assert kind_of([b"who", DELIMITER, b"", b"\xff", b"", b"", b""]) == ""
    assert signed_frames([]) is None
