"""Whether a record from another package can be used: all of it, before any of it is."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping

from replkernel import loaders
from replkernel.state.library import Counter, Generator, Library, Setting
from replkernel.state.process.part import Part
from replkernel.state.wording import PARTS

WORD_MIN = 3
"""A shorter word stands in nearly every cell."""


def faults(record: object, others: Iterable[Library]) -> Iterator[str]:
    """Yield in clauses what is wrong with a record; `others` are those that are there already."""
    if not isinstance(record, Library):
        yield f"it is no Library, but a {type(record).__name__}"
        return
    for field, of_values in (("reducers", str), ("loaders", tuple), ("settings", Setting)):
        value = getattr(record, field)
        if not isinstance(value, Mapping) or not all(_is_text(key) for key in value):
            yield f"its {field} are no mapping with texts as keys"
            return
        for key, held in value.items():
            if not isinstance(held, of_values):
                wanted = of_values.__name__
                yield f"its {field} have a {type(held).__name__} for {key!r}, which is to be a {wanted}"
                return
    yield from _wrong_modules(record, list(others))
    for name, setting in record.settings.items():
        yield from _wrong_setting(record, name, setting)
    for field, kind in (("counters", Counter), ("generators", Generator)):
        if not all(isinstance(one, kind) for one in getattr(record, field)):
            yield f"its {field} are to be a tuple of {kind.__name__}"
    for part in (*record.parts, *record.random_parts):
        yield from _wrong_part(record, part)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _wrong_modules(record: Library, others: list[Library]) -> Iterator[str]:
    topics = {*loaders.HOMES, *(topic for other in others for topic in other.loaders)}
    modules = {module for other in others for module in other.reducers}
    for topic in sorted(topics & set(record.loaders)):
        yield f"its loaders have the topic {topic!r}, which is taken: choose another one"
    for module in sorted(modules & set(record.reducers)):
        yield f"its reducers are for {module}, which has some already"
    named = [*record.reducers.values(), *(module for homes in record.loaders.values() for module in homes)]
    for module in dict.fromkeys(named):
        if not _is_text(module) or not _is_there(module):
            yield f"it names {module}, and there is no such module"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _wrong_setting(record: Library, name: str, setting: Setting) -> Iterator[str]:
    if record.name not in name:
        yield f"its setting {name!r} is to have {record.name} in its name"
    words: object = setting.words
    if not isinstance(words, tuple) or not all(
        isinstance(word, str) and len(word) >= WORD_MIN for word in words
    ):
        yield f"the words of its setting {name!r} are to be a tuple of texts of {WORD_MIN} letters or more"
    if not isinstance(setting.read, Callable) or not isinstance(setting.put, Callable):  # type: ignore[arg-type]
        yield f"its setting {name!r} cannot be read and put: both are to be functions"


def _wrong_part(record: Library, part: object) -> Iterator[str]:
    if not isinstance(part, type) or not issubclass(part, Part):
        yield f"{part!r} is no class below replkernel.state.process.part.Part"
        return
    cid: object = getattr(part, "cid", "")
    if inspect.isabstract(part):
        yield f"{part.__name__} lacks {', '.join(sorted(part.__abstractmethods__))}"
    if not isinstance(cid, str) or not cid.startswith(f"@{record.name}") or cid in PARTS:
        yield f"the cid of {part.__name__} is to begin with @{record.name}, and to be no other's"
