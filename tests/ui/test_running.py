"""The Running panel: replicated kernels are put to rest there, brought back, and deleted."""

from __future__ import annotations

import re

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = '.lm-TabBar-tab[data-id="jp-running-sessions"]'
HEAD = "#jp-running-sessions .lm-AccordionPanel-title"
ALL = '[data-jp-item-name="shutdown-all"] jp-button'
SECTION = "#jp-running-sessions .jp-RunningSessions-section"


def listed(browser: Browser) -> list[str]:
    return [str(text) for text in browser.do("text", "a", query=f"{SECTION} .jp-RunningSessions-item")]


def running(browser: Browser) -> bool:
    return any("a.ipynb" in text and "Idle" in text for text in listed(browser))


def test_a_kernel_is_put_to_rest_brought_back_and_deleted(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: running(browser))
    kernels = [text for text in listed(browser) if "a.ipynb" in text and "Shut Down" in text]
    assert len(kernels) == 1
    described = r"Idle · .*B · less than"
    browser.wait("a", lambda: any(re.search(described, text) for text in listed(browser)))
    assert sum("a.ipynb" in text for text in listed(browser)) == 2  # The open tab and the kernel, once each.
    cut = browser.do("cut", "a", query=f"{SECTION} .jp-replkernel-resting > .jp-replkernel-part")
    assert cut == [], "the name is there in full"
    browser.do("screenshot", "a", path=str(SHOTS / "running-light.png"))

    item = ".jp-RunningSessions-item:has(.jp-RunningSessions-itemDetail)"
    browser.do("hover", "a", query=item, text="Idle")
    browser.do("press", "a", query=f'{item} [title="Hibernate"]')
    resume = f"{SECTION} .jp-replkernel-resting:has-text('Resume')"
    browser.wait("a", lambda: browser.do("text", "a", query=resume) == ["a.ipynb Resume"])
    rested = r"Resume .*B · less than"
    browser.wait("a", lambda: any(re.search(rested, text) for text in listed(browser)))
    browser.do("screenshot", "a", path=str(SHOTS / "running-rest-light.png"))
    assert browser.do("axe", "a", query=f"{SECTION} .jp-replkernel-resting") == []
    browser.do("press", "a", query=f"{resume} button")
    browser.wait("a", lambda: running(browser))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "42\n" in browser.text("a", 2))

    browser.do("hover", "a", query=item, text="Idle")
    browser.do("press", "a", query=f'{item} [title="Hibernate"]')
    browser.wait("a", lambda: browser.do("text", "a", query=resume) == ["a.ipynb Resume"])
    browser.do("press", "a", query=f"{HEAD}:has-text('Hibernated Kernels') {ALL}")
    browser.wait("a", lambda: "for good" in " ".join(browser.do("text", "a", query=".jp-Dialog")))
    browser.do("press", "a", query=".jp-Dialog button.jp-mod-reject")
    browser.wait("a", lambda: browser.do("text", "a", query=".jp-Dialog") == [])
    assert browser.do("text", "a", query=resume) == ["a.ipynb Resume"], "it was asked, and not told"
    browser.do("hover", "a", query=resume)
    browser.do("press", "a", query='.jp-RunningSessions-item:has(.jp-replkernel-resting) [title="Delete"]')
    browser.wait("a", lambda: "for good" in " ".join(browser.do("text", "a", query=".jp-Dialog")))
    browser.do("press", "a", query=".jp-Dialog button.jp-mod-warn")
    browser.wait("a", lambda: browser.do("text", "a", query=resume) == [])
    browser.wait("a", lambda: lab.call("GET", "api/kernels") == [])
    assert browser.do("state", "a")["errors"] == []
