"""The pages of the papers: their tables and pictures are written from the figures that `make sim` keeps.

Law: the same figures give the same pages; what stands outside the marks is left alone.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tests.paper.bars import bars, courses, curves
from tests.paper.report import Course, Curve, Row, Shown, number

PLACE = Path(__file__).parents[2] / "docs" / "understand" / "papers"
FIGURES = PLACE / "figures.json"
PLACES = re.compile(r"(<!-- picture: (\S+) (.*?) -->\n).*?(<!-- end of picture -->)", re.DOTALL)
MARKS = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


class Kept:
    """What the runs of `make sim` have shown, by suite."""

    def __init__(
        self,
        rows: Mapping[str, Sequence[Row]],
        drawn: Mapping[str, Sequence[Course]],
        curves: Mapping[str, Sequence[Curve]] | None = None,
    ) -> None:
        self.rows = dict(rows)
        self.courses = dict(drawn)
        self.curves = dict(curves or {})

    @classmethod
    def read(cls) -> Kept:
        """Return what is kept; nothing where nothing is."""
        document = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        return cls(
            {suite: [Row(**row) for row in one["rows"]] for suite, one in document.items()},
            {suite: [Course(**course) for course in one["courses"]] for suite, one in document.items()},
            {suite: [Curve(**curve) for curve in one.get("curves", ())] for suite, one in document.items()},
        )

    def take(self, suite: str, shown: Iterable[Shown]) -> None:
        """Replace what is kept of a suite."""
        found = [*shown]
        self.rows[suite] = [Row(**one.kept) for one in found if isinstance(one, Row)]
        self.courses[suite] = [Course(**one.kept) for one in found if isinstance(one, Course)]
        self.curves[suite] = [Curve(**one.kept) for one in found if isinstance(one, Curve)]

    def write(self) -> None:
        """Keep it, a figure a line, so that a change is seen."""
        suites = []
        for suite in sorted(self.rows):
            parts = []
            for name, ones in (
                ("rows", self.rows[suite]),
                ("courses", self.courses[suite]),
                ("curves", self.curves.get(suite, [])),
            ):
                if name == "curves" and not ones:
                    continue
                lines = ",\n".join(f"   {json.dumps(one.kept, ensure_ascii=False)}" for one in ones)
                parts.append(f'  "{name}": [\n{lines}\n  ]' if lines else f'  "{name}": []')
            suites.append(f' "{suite}": {{\n' + ",\n".join(parts) + "\n }")
        FIGURES.write_text("{\n" + ",\n".join(suites) + "\n}\n")

    def differing(self, rows: Iterable[Row]) -> list[str]:
        """Return which rows are kept with another figure, to the digits that pages show, or not at all."""
        known = {(row.paper, row.what): row for ones in self.rows.values() for row in ones}
        return [
            f"{row.paper}: {row.what}: {number(row.ours)}, kept is {number(kept.ours if kept else None)}"
            for row in rows
            if (kept := known.get((row.paper, row.what))) is None or number(kept.ours) != number(row.ours)
        ]


def section(rows: Sequence[Row], prefix: str, pattern: str) -> str:
    """Return the table of the rows whose subject begins with `prefix`, which is left out, and goes on so."""
    chosen = [
        (row.what.removeprefix(prefix).lstrip(",: "), row)
        for row in rows
        if row.what.startswith(prefix) and re.search(pattern, row.what.removeprefix(prefix))
    ]
    assert chosen, f"no row has {prefix!r} and {pattern!r}"
    compared = any(row.published is not None for _, row in chosen)
    head = "| what | published | ours | difference | why |" if compared else "| what | ours | |"
    lines = [head, "| --- " * (head.count("|") - 1) + "|"]
    for what, row in chosen:
        known = row.published is not None
        figures = [f"{number(row.ours)} {row.unit}"]
        if compared:
            there = f"{number(row.published)} {row.unit}" if known else ""
            figures = [there, *figures, row.difference if known else ""]
        parts = [what, *(figure.replace("-", "−") for figure in figures), row.why]
        lines.append(f"| {' | '.join(parts)} |".replace("  ", " "))
    return "\n".join(lines)


def filled(text: str, kept: Kept) -> str:
    """Return a page with its tables; a mark has a suite, a prefix of subjects, and a pattern."""

    def fill(match: re.Match[str]) -> str:
        suite, prefix, pattern = (*shlex.split(match[2]), "", "")[:3]
        if suite not in kept.rows:
            return match[0]
        return f"{match[1]}\n{section(kept.rows[suite], prefix, pattern)}\n\n{match[3]}"

    def place(match: re.Match[str]) -> str:
        shown = f"\n![{match[3]}]({match[2]}.svg)\n\n" if _suite(match[2]) in kept.rows else ""
        return f"{match[1]}{shown}{match[4]}"

    return PLACES.sub(place, MARKS.sub(fill, text))


def pages(kept: Kept) -> dict[Path, str]:
    """Return all pages and pictures as they should be; a suite that was never run has none yet."""
    written = {path: filled(path.read_text(), kept) for path in sorted(PLACE.glob("*.md"))}
    drawn = {name: draw for name, draw in PICTURES.items() if _suite(name) in kept.rows}
    return written | {PLACE / f"{name}.svg": draw(kept) for name, draw in drawn.items()}


def _suite(picture: str) -> str:
    return picture.partition("-")[0]


def _beside(kept: Kept, suite: str, subjects: Mapping[str, Sequence[str]]) -> dict[str, list[float | None]]:
    """Return groups of bars: what is published of the first of these subjects, and ours of all of them."""
    rows = {row.what: row for row in kept.rows[suite]}
    return {name: [rows[of[0]].published, *(rows[one].ours for one in of)] for name, of in subjects.items()}


MIXES = {
    "17.5 h, GPUs of the trace": "ours, GPUs of the trace",
    "17.5 h, GPUs of the template": "ours, of the template",
}


def _gpu_hours(kept: Kept) -> str:
    subjects = {
        policy: [f"{mix}, {policy}: provisioned" for mix in MIXES]
        for policy in ("Reservation", "NotebookOS", "LCP", "Batch", "oracle")
    }
    series = ("published", *MIXES.values())
    return bars("GPU-hours in 17.5 h", "GPU-h", series, _beside(kept, "notebookos", subjects))


def _gpus(kept: Kept) -> str:
    lines = {course.what: course.values for course in kept.courses["notebookos"]}
    return courses("GPUs over 17.5 h", "GPUs", kept.courses["notebookos"][0].step_s, lines)


def _load(kept: Kept) -> str:
    lines = {course.what: course.values for course in kept.courses["load"]}
    return courses("Sessions and cells over 17.5 h", "at a time", kept.courses["load"][0].step_s, lines)


def _times(kept: Kept) -> str:
    return curves("Run times and times between, June", "s", _curves_of(kept, "load"))


def _case_study(kept: Kept) -> str:
    subjects = {
        f"{way}: {what}": [f"case study, {way}: {subject}"]
        for what, subject in (("makespan", "makespan"), ("job 2 trains", "job 2 trains"))
        for way in ("default", "termination", "SideCar")
    }
    return bars("Two jobs on four GPUs", "s", ("published", "ours"), _beside(kept, "sidecar", subjects))


def _pending(kept: Kept) -> str:
    lines = {course.what: course.values for course in kept.courses["sidecar"]}
    return courses("Jobs that wait for GPUs", "jobs", kept.courses["sidecar"][0].step_s, lines)


def _slowdown(kept: Kept) -> str:
    policies = {
        "sjf": "SJF", "srtf": "SRTF", "periodic,every=60": "every 60 s", "periodic,every=360": "every 360 s",
        "periodic,every=600": "every 600 s",
    }  # fmt: skip
    subjects = {
        name: [f"{trace}, {policy}: JCT p50 over Lazer's" for trace in ("Venus", "Philly")]
        for policy, name in policies.items()
    }
    series = ("published, the authors' testbed", "ours, Venus", "ours, Philly")
    return bars("Median JCT, in times Lazer's", "x", series, _beside(kept, "lazer", subjects))


def _curves_of(kept: Kept, suite: str) -> dict[str, tuple[float, ...]]:
    return {curve.what: curve.quantiles for curve in kept.curves.get(suite, ())}


def _slowdowns(kept: Kept) -> str:
    return curves("Slowdown of jobs, set 1", "x", _curves_of(kept, "oversubscription"), least_share=80)


def _waits(kept: Kept) -> str:
    policies = {f"SQ, M = {m}": f"sq,m={m}" for m in (1, 2, 3, 4)}
    policies |= {f"MQ, R = {r} %": f"mq,r={r},mi=4,mb=1" for r in (1, 2, 3)}
    subjects = {name: [f"set 1, {policy}: interactive jobs that wait"] for name, policy in policies.items()}
    groups = _beside(kept, "oversubscription", subjects)
    return bars("Interactive jobs that wait", "%", ("published", "ours"), groups)


PICTURES: dict[str, Callable[[Kept], str]] = {
    "notebookos-gpu-hours": _gpu_hours,
    "notebookos-gpus": _gpus,
    "load-sessions": _load,
    "load-times": _times,
    "sidecar-case-study": _case_study,
    "sidecar-pending": _pending,
    "lazer-jct": _slowdown,
    "oversubscription-waits": _waits,
    "oversubscription-slowdowns": _slowdowns,
}
"""The pictures, by their names, which begin with the suite that has their figures."""
