"""A job that a cell has submitted: panel and dashboard show it beside the notebook, with its GPUs."""

from __future__ import annotations

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, panel, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
PANEL_TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
DASHBOARD = ".jp-replkernel-dashboard"
TRAINING = """\
%%job --gpus 1,2 --epochs 4000 --name resnet
import os, time
from replkernel import job
first = int(job.checkpoint_path.read_text()) if job.checkpoint_path.exists() else 0
for epoch in range(first, 4000):
    if not os.path.exists("hurry"):
        time.sleep(0.5)
    job.progress(epoch + 1, 1 / (epoch + 1))
    if job.should_checkpoint():
        job.checkpoint_path.write_text(str(epoch + 1))
"""


def rows(browser: Browser, what: str) -> list[str]:
    return [str(row) for row in browser.do("text", "a", query=f'{DASHBOARD} [aria-label="{what}"] tbody tr')]


def test_a_job_is_shown_with_its_gpus_its_progress_and_why_it_was_reshaped(
    own_desk: tuple[Lab, Browser],
) -> None:
    lab, browser = own_desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", TRAINING, "%%gpu 1\nimport time; time.sleep(20)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=1400)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.do("press", "a", query=PANEL_TAB)
    browser.wait("a", lambda: "training · 2 of 1 or 2 GPUs" in panel(browser))
    browser.wait("a", lambda: "Ends in about " in panel(browser))
    assert "2 used by a job" in panel(browser) and "of 4000 · loss 0." in panel(browser)
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "training · 1 of 1 or 2 GPUs" in panel(browser))
    assert "1 GPU, because a notebook wanted its GPUs" in panel(browser)
    browser.do("screenshot", "a", path=str(SHOTS / "jobs-panel.png"))
    browser.do("command", "a", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("a", lambda: bool(rows(browser, "Jobs beside notebooks")))
    (row,) = rows(browser, "Jobs beside notebooks")
    assert row.startswith("resnet-") and " training 1 of 1 or 2 " in row and " on 1 GPU, " in row, row
    whys = rows(browser, "Why jobs’ GPUs changed")
    assert whys[0].endswith(" 1 a notebook wanted its GPUs") and whys[1].endswith(" 2 GPUs were idle"), whys
    assert any(row.startswith("job resnet-") for row in rows(browser, "Who holds GPUs now"))
    assert browser.do("axe", "a", query=DASHBOARD) == []
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / "jobs-dashboard.png"))
    (lab.directory / "hurry").touch()
    browser.wait("a", lambda: " done – " in " ".join(rows(browser, "Jobs beside notebooks")))
    assert browser.do("state", "a")["errors"] == []
