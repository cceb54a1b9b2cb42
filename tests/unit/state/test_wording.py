"""What is no variable is told in words."""

from __future__ import annotations

import pytest

from replkernel.state.hooks import HOOKS_ROOT
from replkernel.state.process.parts import built_in_parts
from replkernel.state.wording import PARTS, part_in_words, root_in_words


def test_every_part_of_the_process_has_words_of_its_own() -> None:
    with_a_shell = {"@history", "@ipython_hooks", "@same", "@seldom", "@warnings_shown"}
    assert {part.cid for part in built_in_parts()} | with_a_shell <= set(PARTS)
    assert part_in_words("@signals") == "process: signal handlers and alarms"
    assert len({part_in_words(cid) for cid in PARTS}) == len(PARTS)


def test_a_part_that_is_not_known_goes_by_its_id() -> None:
    assert part_in_words("@new_thing") == "process: new thing"


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("class:Sub@r1.1.2", "class Sub"),
        ("class:make.<locals>.Sub@r1.1.2", "class make.<locals>.Sub"),
        ("library json:limits", "json.limits"),
        (HOOKS_ROOT, "replkernel.register"),
        ("x", "x"),
    ],
)
def test_a_root_is_told_as_its_user_knows_it(root: str, words: str) -> None:
    assert root_in_words(root) == words


def test_the_log_of_cells_is_their_sources() -> None:
    assert part_in_words("@cells/0007") == "sources of cells"
