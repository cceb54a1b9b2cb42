"""Widgets in the next process: pages reach them by the comms that they know, and what they call is called."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm
from ipywidgets.widgets import widget as widgets

from replkernel.state.libraries import ipywidgets as carried
from replkernel.state.patches.book import book
from tests.support.notebook import Notebook, pair

SLIDER = (
    "import ipywidgets as w\nlog = []; slider = w.IntSlider(3)\n"
    "slider.observe(lambda change: log.append(change['new']), 'value')\n"
)
NO_VARIABLE = (
    "import ipywidgets as w\nlog = []\n"
    "def shown():\n"
    "    inner = w.IntText(); inner.observe(lambda change: log.append(change['new']), 'value')\n"
    "    return w.VBox([inner]).model_id, inner.model_id, w.IntText().model_id\n"
    "box, inner, idle = shown()"
)
OF_THE_NOTEBOOK = (
    "import ipywidgets as w\n"
    "class App(w.VBox):\n"
    "    def __init__(self):\n"
    "        self.slider = w.IntSlider(3); self.seen = []\n"
    "        super().__init__([self.slider]); self.slider.observe(self._moved, 'value')\n"
    "    def _moved(self, change): self.seen.append(change['new'])\n"
    "app = App()"
)


class Page:
    """What pages hear of comms, in the order in which they hear it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, Any]] = []

    def of(self, comm_id: str) -> list[tuple[str, Any]]:
        """Return what was said on one comm."""
        return [(kind, data) for kind, known, data in self.heard if known == comm_id]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A page that listens, in a process without widgets; afterwards there are none again."""
    listens = Page()

    class Told(BaseComm):
        kernel: Any = None

        def publish_msg(self, msg_type: str, data: Any = None, **rest: Any) -> None:
            self.kernel = "this one"
            listens.heard.append((msg_type, self.comm_id, data))

    monkeypatch.setattr(comm, "create_comm", Told)
    monkeypatch.setattr(carried, "get_ipython", lambda: SimpleNamespace(kernel="this one"))
    yield listens
    _end_of_process()


def _end_of_process() -> None:
    """Forget all widgets, as a process does that is killed: nobody hears of it."""
    for instance in widgets._instances.values():
        instance._trait_values["comm"] = None
    book.clear()
    widgets._instances.clear()
    comm.get_comm_manager().comms.clear()
    carried._rebuilt.clear()


def _lost(page: Page, *cells: str) -> tuple[Notebook, dict[str, Any]]:
    """Run cells, lose the process, and return the next one's notebook, with the variables of the lost one."""
    first, second = pair()
    deltas = [first.run(cell, seq) for seq, cell in enumerate(cells, start=1)]
    assert not [pin for delta in deltas for component in delta.components for pin in component.pins]
    before = {name: getattr(value, "model_id", None) for name, value in first.namespace.items()}
    before |= {name: value for name, value in first.namespace.items() if isinstance(value, str)}
    _end_of_process()
    page.heard.clear()
    assert second.take(*deltas).failed == ()
    assert page.heard == []
    return second, before


def _says(comm_id: str, **content: Any) -> None:
    """Have the page say something to a widget."""
    said = {"content": {"comm_id": comm_id, "data": content}, "buffers": []}
    comm.get_comm_manager().comm_msg(None, "", said)


def test_a_slider_on_the_page_moves_the_one_in_the_next_process(page: Page) -> None:
    notebook, before = _lost(page, SLIDER)
    _says(before["slider"], method="update", state={"value": 7})
    assert (notebook["slider"].value, notebook["log"]) == (7, [7])
    assert ("comm_msg", {"method": "echo_update", "state": {"value": 7}, "buffer_paths": []}) in page.of(
        before["slider"]
    )


def test_the_next_process_moves_the_slider_on_the_page(page: Page) -> None:
    notebook, before = _lost(page, SLIDER)
    notebook["slider"].value = 8
    assert page.of(before["slider"])[-1][1]["state"] == {"value": 8}
    assert notebook["slider"].model_id == before["slider"]


def test_a_button_calls_what_it_called(page: Page) -> None:
    cell = "import ipywidgets as w\nlog = []; b = w.Button(); b.on_click(lambda _: log.append('clicked'))"
    notebook, before = _lost(page, cell)
    _says(before["b"], method="custom", content={"event": "click"})
    assert notebook["log"] == ["clicked"]


def test_interact_computes_anew_and_shows_it_in_its_output(page: Page) -> None:
    cell = "import ipywidgets as w\nui = w.interactive(lambda x: x * 2, x=(0, 9)); slider = ui.children[0]"
    notebook, before = _lost(page, cell)
    _says(before["slider"], method="update", state={"value": 4})
    assert (notebook["ui"].result, notebook["ui"].out in notebook["ui"].children) == (8, True)


def test_a_widget_that_no_variable_holds_calls_what_it_called(page: Page) -> None:
    notebook, before = _lost(page, NO_VARIABLE)
    _says(before["inner"], method="update", state={"value": 5})
    assert notebook["log"] == [5]
    assert before["box"] in widgets._instances
    assert before["idle"] not in widgets._instances


def test_a_widget_of_the_notebooks_own_class_goes_on(page: Page) -> None:
    notebook, before = _lost(page, OF_THE_NOTEBOOK)
    app = notebook["app"]
    _says(app.slider.model_id, method="update", state={"value": 6})
    assert (app.model_id, app.seen, app.children[0] is app.slider) == (before["app"], [6], True)


def test_a_closed_widget_stays_closed(page: Page) -> None:
    notebook, _ = _lost(page, SLIDER, "slider.close()")
    assert notebook["slider"].comm is None
    assert not [one for one in widgets._instances.values() if isinstance(one, type(notebook["slider"]))]


def test_a_page_that_is_opened_anew_gets_what_there_is(page: Page) -> None:
    _, before = _lost(page, SLIDER)
    targets = comm.get_comm_manager().targets
    opened: Any = comm.create_comm(target_name="jupyter.widget.control", comm_id="c", primary=False)
    targets["jupyter.widget.control"](opened, {"metadata": {"version": "1.0.0"}, "content": {"data": {}}})
    opened.handle_msg({"content": {"data": {"method": "request_states"}}})
    ((_, told),) = page.of("c")
    assert told["states"][before["slider"]]["state"]["value"] == 3


def test_a_widget_that_another_process_has_closed_is_closed_here(page: Page) -> None:
    first, second = pair()
    one = first.run(f"{NO_VARIABLE}\n{SLIDER}", 1)
    closed = {first["slider"].model_id, first["inner"]}
    two = first.run("slider.close(); w.widgets.widget._instances[inner].close()", 2)
    _end_of_process()
    second.take(one)
    page.heard.clear()
    assert closed <= comm.get_comm_manager().comms.keys() & widgets._instances.keys()
    second.take(two)
    carried.tell_pages()
    assert not closed & (comm.get_comm_manager().comms.keys() | widgets._instances.keys())
    assert not [known for _, known, _ in page.heard if known in closed]


def test_links_between_widgets_hold(page: Page) -> None:
    cell = "text = w.IntText(); link = w.link((slider, 'value'), (text, 'value'))"
    notebook, before = _lost(page, SLIDER, cell)
    _says(before["text"], method="update", state={"value": 9})
    assert (notebook["slider"].value, notebook["log"][-1]) == (9, 9)


def test_pages_show_what_rebuilt_widgets_hold_once_they_are_told(page: Page) -> None:
    _, before = _lost(page, SLIDER)
    carried.tell_pages()
    (told,) = page.of(before["slider"])
    assert (told[0], told[1]["method"], told[1]["state"]["value"]) == ("comm_msg", "update", 3)
    page.heard.clear()
    carried.tell_pages()
    assert page.heard == []


def test_a_widget_that_takes_anothers_place_closes_nothing_on_the_page(page: Page) -> None:
    first, second = pair()
    one = first.run(SLIDER, 1)
    two = first.run("slider.value = 4", 2)
    _end_of_process()
    second.take(one)
    page.heard.clear()
    second.take(two)
    assert (second["slider"].value, [kind for kind, *_ in page.heard]) == (4, [])
    assert widgets._instances[second["slider"].model_id] is second["slider"]
