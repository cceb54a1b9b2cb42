"""The forms of traces that can be read, by name, and which one a file has.

Law: a file says by its first lines what it is; a user may say it instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from replkernel_scheduler.sim.csv_rows import header_of
from replkernel_scheduler.sim.errors import TraceUnreadable
from replkernel_scheduler.sim.loaders import adobe, alibaba, helios, journal, own_csv, philly, swf
from replkernel_scheduler.sim.records import Job, Record
from replkernel_scheduler.sim.trace_file import TraceFile

Loader: TypeAlias = Callable[[TraceFile], Iterator[Record]]
FORMS: dict[str, Loader] = {
    "swf": swf.records,
    "helios": helios.records,
    "philly-log": philly.log_records,
    "philly-table": philly.table_records,
    "philly-pollux": philly.pollux_records,
    "alibaba-pods": alibaba.records,
    "adobe-june": adobe.records,
    "journal": journal.records,
    "csv": own_csv.records,
}
HEADERS: dict[str, Callable[[list[str]], bool]] = {
    "helios": helios.looks_like,
    "philly-table": philly.is_table,
    "philly-pollux": philly.is_pollux,
    "alibaba-pods": alibaba.looks_like,
    "adobe-june": adobe.looks_like,
    "csv": own_csv.looks_like,
}


def form_of(file: TraceFile) -> str:
    """Return the name of the form that a file has; raise TraceUnreadable if it is none that is known."""
    line = file.first_line()
    if journal.looks_like(line):
        return "journal"
    if philly.is_log(line):
        return "philly-log"
    if swf.looks_like(line):
        return "swf"
    header = header_of(file)
    if file.columns and own_csv.looks_like(header):
        return "csv"
    for name, looks_like in HEADERS.items():
        if looks_like(header):
            return name
    found = f"its first line is {line[:80]!r}" if line else "it is empty"
    nearly = own_csv.nearly(header, named=bool(file.columns))
    raise TraceUnreadable(
        f"{file.path} has none of the forms {', '.join(FORMS)}: {nearly or found}. "
        + ("" if nearly else f"Name the form with --form, or write {own_csv.COLUMNS}.")
    )


def read(file: TraceFile, form: str | None = None) -> Iterator[Record]:
    """Yield the records of a file, in its order; raise TraceUnreadable if it has not the form."""
    if form in HEADERS and not HEADERS[form](header := header_of(file)):
        found = f"its columns are {','.join(header)[:80]!r}" if header else "it is empty"
        if form == "csv":
            found = own_csv.nearly(header, named=bool(file.columns)) or f"{found}; it is {own_csv.COLUMNS}"
        raise TraceUnreadable(f"{file.path} has not the form {form}: {found}.")
    return FORMS[form or form_of(file)](file)


def read_all(files: Sequence[TraceFile], form: str | None = None) -> Iterator[Record]:
    """Yield the records of all files; with several, ids carry the number of their file."""
    for number, file in enumerate(files):
        records = read(file, form)
        yield from records if len(files) == 1 else _named(records, f"{number}:")


def _named(records: Iterable[Record], prefix: str) -> Iterator[Record]:
    for record in records:
        if isinstance(record, Job):
            yield msgspec.structs.replace(record, job=prefix + record.job)
        else:
            yield msgspec.structs.replace(record, session=prefix + record.session)
