"""The pages of the papers: their tables and pictures are written from the figures that `make sim` keeps.

Law: the same figures give the same pages; what stands outside the marks is left alone.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tests.paper import quarter
from tests.paper.bars import bars, courses, curves, spans
from tests.paper.load import DUTY, INTERVALS_S, JUNE_NAME, rerun
from tests.paper.notebookos import JUNE_GPUS, JUNE_MONEY
from tests.paper.report import Course, Curve, Row, Shown, number
from tests.paper.sidecar import CASE_NAME

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
    return _course_of(kept, "notebookos", "GPUs over 17.5 h", "GPUs")


def _june_gpus(kept: Kept) -> str:
    return _course_of(kept, "notebookos", "GPUs over June", "GPUs", JUNE_GPUS)


def _june_money(kept: Kept) -> str:
    return _course_of(kept, "notebookos", "Cost and revenue so far, June", "thousand $", JUNE_MONEY)


def _quarter_load(kept: Kept) -> str:
    return _course_of(kept, "quarter", "Sessions and cells over 92 days, made", "at a time", quarter.LOAD)


def _quarter_gpus(kept: Kept) -> str:
    return _course_of(kept, "quarter", "GPUs over 92 days, made", "GPUs", quarter.GPUS)


def _quarter_money(kept: Kept) -> str:
    title = "Cost and revenue so far, 92 days, made"
    return _course_of(kept, "quarter", title, "thousand $", quarter.MONEY)


def _course_of(kept: Kept, suite: str, title: str, unit: str, before: str = "") -> str:
    """Draw the courses of a suite whose names begin so; without such a beginning those that have none."""
    found = {
        course.what.removeprefix(before): course
        for course in kept.courses[suite]
        if (course.what.startswith(before) if before else ", " not in course.what)
    }
    step_s = next(iter(found.values())).step_s
    return courses(title, unit, step_s, {name: course.values for name, course in found.items()})


def _load(kept: Kept) -> str:
    return _course_of(kept, "load", "Sessions and cells over 17.5 h", "at a time")


def _load_june(kept: Kept) -> str:
    return _course_of(kept, "load", "Sessions and cells over June", "at a time", JUNE_NAME)


def _times(kept: Kept) -> str:
    lines = {name: found for name, found in _curves_of(kept, "load").items() if name != DUTY}
    return curves("Run times and times between, June", "s", lines)


def _duty(kept: Kept) -> str:
    return curves("How much sessions compute, June", "%", {DUTY: _curves_of(kept, "load")[DUTY]})


def _saved(kept: Kept) -> str:
    subjects = {
        f"after {interval_s / 60:g} min": [rerun(interval_s)] for interval_s in INTERVALS_S
    }  # fmt: skip
    groups = _beside(kept, "load", subjects)
    return bars("GPU-hours that run again without kept state", "GPU-h", ("published", "ours, June"), groups)


def _case_study(kept: Kept) -> str:
    subjects = {
        f"{way}: {what}": [f"case study, {way}: {subject}"]
        for what, subject in (("makespan", "makespan"), ("job 2 trains", "job 2 trains"))
        for way in ("default", "termination", "SideCar")
    }
    return bars("Two jobs on four GPUs", "s", ("published", "ours"), _beside(kept, "sidecar", subjects))


def _case_gpus(kept: Kept) -> str:
    found = [course for course in kept.courses["sidecar"] if course.what.startswith(CASE_NAME)]
    rows = {course.what.removeprefix(CASE_NAME): course.values for course in found}
    return spans("GPUs that two jobs train with", "GPUs", found[0].step_s, 4, rows)


def _pending(kept: Kept) -> str:
    return _course_of(kept, "sidecar", "Jobs that wait for GPUs", "jobs")


def _less(kept: Kept) -> str:
    subjects = {
        f"{what}, than {way}": [f"30 jobs on 16 GPUs: {what} less than {way} (paper: mean of W1 to W4)"]
        for what in ("makespan", "mean JCT")
        for way in ("default", "termination")
    }
    series = ("published, mean of four workloads", "ours, mean of ten seeds")
    return bars("How much less SideCar takes", "%", series, _beside(kept, "sidecar", subjects))


def _stopped(kept: Kept) -> str:
    subjects = {
        way: [f"the same, {way}: share of JCT stopped by reshaping"] for way in ("termination", "SideCar")
    }
    series = ("published, mean of four workloads", "ours, mean of ten seeds")
    return bars("Share of JCT that reshaping takes", "%", series, _beside(kept, "sidecar", subjects))


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
    "notebookos-june-gpus": _june_gpus,
    "notebookos-june-money": _june_money,
    "quarter-load": _quarter_load,
    "quarter-gpus": _quarter_gpus,
    "quarter-money": _quarter_money,
    "load-sessions": _load,
    "load-june": _load_june,
    "load-times": _times,
    "load-duty": _duty,
    "load-saved": _saved,
    "sidecar-case-study": _case_study,
    "sidecar-case-gpus": _case_gpus,
    "sidecar-pending": _pending,
    "sidecar-less": _less,
    "sidecar-stopped": _stopped,
    "lazer-jct": _slowdown,
    "oversubscription-waits": _waits,
    "oversubscription-slowdowns": _slowdowns,
}
"""The pictures, by their names, which begin with the suite that has their figures."""
