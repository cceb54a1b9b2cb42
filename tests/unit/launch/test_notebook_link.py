"""Which kernel a notebook has: the path that the front end's code names, and how a notebook begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.launch.notebook_link import (
    RESTART_S,
    NotebookLink,
    Opener,
    how_it_starts,
    link_file,
    named_in,
    read_link,
    write_link,
)

HERE, ANOTHER = Opener(10, 1), Opener(10, 2)


@pytest.mark.parametrize(
    ("code", "path"),
    [
        (
            'import a\n__vsc_ipynb_file__ = "/home/ann/x y.ipynb"\n%config Completer.use_jedi = False',
            "/home/ann/x y.ipynb",
        ),
        ("__vsc_ipynb_file__ = '/n.ipynb'", "/n.ipynb"),
        ('__vsc_ipynb_file__ = "c:\\\\n\\\\x.ipynb"', "c:\\n\\x.ipynb"),
        ("print(__vsc_ipynb_file__)", ""),
        ("__vsc_ipynb_file__ = open('x')", ""),
        ('__vsc_ipynb_file__ = "a" + "b"', ""),
        ("", ""),
    ],
)
def test_the_path_is_read_where_it_is_assigned(code: str, path: str) -> None:
    assert named_in(code) == path


def test_a_notebook_is_restarted_by_who_has_just_closed_it_and_else_goes_on() -> None:
    closed = NotebookLink("/n.ipynb", "k", HERE, closed=100.0)
    assert how_it_starts(None, HERE, 100.0) == "new"
    assert how_it_starts(closed, HERE, 100.0 + RESTART_S / 2) == "restart"
    assert how_it_starts(closed, HERE, 100.0 + RESTART_S) == "again"
    assert how_it_starts(closed, ANOTHER, 100.1) == "again"
    assert how_it_starts(NotebookLink("/n.ipynb", "k", HERE), HERE, 100.1) == "again"


def test_a_link_is_its_owners_and_found_by_every_name_of_the_file(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path / "data")}
    (tmp_path / "other").symlink_to(tmp_path)
    file = link_file(str(tmp_path / "n.ipynb"), env)
    assert file == link_file(str(tmp_path / "other" / "n.ipynb"), env)
    assert read_link(file) is None
    link = NotebookLink("/n.ipynb", "k", HERE, 5.0)
    write_link(file, link)
    assert read_link(file) == link
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{")
    assert read_link(file) is None
