"""`replkernel job logs -f` goes on when the job does, on whatever host."""

from __future__ import annotations

import urllib.parse

import msgspec
import pytest

from replkernel.cli import jobs


class Moved:
    """A scheduler whose job writes on one host, then on another, and comes back to the first."""

    def __init__(self) -> None:
        self.logs = {"h1": "one two three ", "h2": ""}
        self.stays = ["h1", "h1", "h2", "h2", "h1", "h1"]
        self.asked = 0

    def answer(self, path: str, *_: object) -> bytes:
        host = self.stays[min(self.asked, len(self.stays) - 1)]
        if "/log" not in path:
            if self.asked == 2:
                self.logs["h2"] = "four "
            if self.asked == 4:
                self.logs["h1"] += "five\n"
            shown = jobs.JobAnswer(
                "j", "u", "running", host, (), [1], ["x"], "/w", 1, None, None, None, None, 0.0, ""
            )
            return msgspec.json.encode(shown)
        at = int(urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)["at"][0])
        self.asked += 1
        text = self.logs[host][at:]
        return msgspec.json.encode(jobs.LogAnswer(text, at, at + len(text), self.asked > len(self.stays)))


def test_a_log_is_followed_from_host_to_host_and_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "asked", Moved().answer)
    monkeypatch.setattr(jobs, "FOLLOW_S", 0.0)
    assert jobs._logs("j", follow=True) == 0
    assert capsys.readouterr().out == "one two three four five\n"
