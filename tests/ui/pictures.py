"""Takes the pictures of README and site (`make pictures`): a notebook in a real browser, in light and dark.

Law: nothing is drawn or mended by hand; what a picture shows has just happened. Pictures are small enough to
be kept beside the code.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from tests.ui.driven import PANEL, ROOT, Browser, Lab, lab_in_browser, panel, write_notebook

INTO = ROOT / "docs" / "pictures"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
REPLICATED = "Python 3 (replicated)"
TOAST, SAFE = ".Toastify__toast", "The notebook’s variables are safe"
WIDTH, HEIGHT = 1100, 900
"""Large enough for notifications to cover nothing, and for the whole panel."""

EDGE = 4
"""How many rows below a part of the page belong to the frame of the next one."""

PICTURE_BYTES_MAX, FILM_BYTES_MAX = 200_000, 1_500_000
FILM_QUALITY = 80

HOLD = "import time\nfrom pathlib import Path\nwhile not Path('told').exists():\n    time.sleep(0.1)"
STATE = (
    "import random\n\n"
    "measurements = [random.gauss(0, 1) for _ in range(200_000)]\n"
    "mean = sum(measurements) / len(measurements)"
)
TRAIN = '%%gpu 1\nimport os, time\n\ntime.sleep(5)\n"Trained on " + os.environ["CUDA_VISIBLE_DEVICES"]'
KILL = (
    "import signal\nfrom ipywidgets import Button\n\n"
    'kill = Button(description="Kill the executor", button_style="danger")\n'
    "kill.on_click(lambda _: os.kill(os.getpid(), signal.SIGKILL))\nkill"
)
AFTER = "len(measurements), mean"
MADE, TRAINED, BUTTON, NEXT = range(1, 5)


class Camera:
    """Takes pictures of one page in one theme, and keeps those that make the film."""

    def __init__(self, browser: Browser, theme: str, directory: Path) -> None:
        self._browser = browser
        self._theme = theme
        self._raw = directory / "raw.png"
        self._film: list[tuple[Image.Image, int]] = []

    def still(self, name: str, query: str | None = None) -> None:
        """Take the picture of a part of the page, or of all of it."""
        details = {} if query is None else {"query": query}
        self._browser.do("screenshot", "a", path=str(self._raw), **details)
        path = INTO / f"{name}-{self._theme}.png"
        with Image.open(self._raw) as picture:
            shown = picture.crop((0, 0, picture.width, picture.height - (EDGE if query else 0)))
            shown.convert("RGB").quantize(256).save(path, optimize=True)
        checked(path, PICTURE_BYTES_MAX)

    def frame(self, seconds: float) -> None:
        """Take the film's next picture, which is shown for so long."""
        self._browser.do("screenshot", "a", path=str(self._raw))
        with Image.open(self._raw) as picture:
            self._film.append((picture.convert("RGB"), int(seconds * 1000)))

    def film(self, name: str) -> None:
        """Write what has been taken as an animation."""
        pictures, durations = zip(*self._film, strict=True)
        path = INTO / f"{name}-{self._theme}.webp"
        pictures[0].save(
            path,
            save_all=True,
            append_images=pictures[1:],
            duration=list(durations),
            loop=0,
            quality=FILM_QUALITY,
            method=6,
        )
        checked(path, FILM_BYTES_MAX)


def checked(path: Path, bytes_max: int) -> None:
    """Say what was written; raise ValueError if it is too large to be kept."""
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size // 1000} kB")
    if size > bytes_max:
        raise ValueError(f"{path} has {size} bytes, which is more than {bytes_max}")


def run(browser: Browser, cell: int) -> None:
    """Run a cell, and wait until what it changed is durable."""
    browser.do("run", "a", cell=cell)
    browser.wait("a", lambda: browser.line("a", cell).endswith(" durable"))


def line(cell: int) -> str:
    """Return how a cell is found, with what it shows and its line."""
    return f".jp-Notebook .jp-CodeCell >> nth={cell - 1}"


def play(lab: Lab, browser: Browser, camera: Camera) -> None:
    """Play the story: a cell waits for a GPU, runs, is durable; after a kill the next cell is fine."""
    told = lab.directory / "told"
    told.unlink(missing_ok=True)
    open_notebook(lab, browser, "b", "other.ipynb", 1)
    browser.do("run", "b", cell=1, kernel=REPLICATED)
    browser.wait("b", lambda: "Running" in browser.line("b"))
    browser.do("run", "a", cell=MADE, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a", MADE).endswith(" durable"))
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    camera.frame(2)

    browser.do("run", "a", cell=TRAINED)
    browser.wait("a", lambda: "next in line" in browser.line("a", TRAINED))
    camera.frame(2.5)
    camera.still("waiting", line(TRAINED))
    told.touch()
    browser.wait("a", lambda: "Running" in browser.line("a", TRAINED))
    camera.frame(2)
    camera.still("running", line(TRAINED))
    browser.wait("a", lambda: browser.line("a", TRAINED).endswith(" durable"))
    browser.wait("a", lambda: "kept between cells" in panel(browser))
    camera.frame(2)
    camera.still("durable", line(TRAINED))
    camera.still("panel", PANEL)

    run(browser, BUTTON)
    camera.frame(1.5)
    browser.do("press", "a", query=".jp-Notebook button", text="Kill the executor")
    browser.wait("a", lambda: SAFE in " ".join(browser.do("text", "a", query=TOAST)))
    camera.frame(3)
    run(browser, NEXT)
    camera.frame(4)
    camera.still("survived")
    camera.film("story")


def open_notebook(lab: Lab, browser: Browser, page: str, name: str, cells: int) -> None:
    """Open a notebook in a page of its own."""
    url = lab.url(f"lab/tree/{name}") + "&reset"
    browser.do("open", page, url=url, cells=cells, width=WIDTH, height=HEIGHT)


def take(lab: Lab, browser: Browser, theme: str) -> None:
    """Take all pictures in one theme, of new kernels."""
    name = "training.ipynb"
    write_notebook(lab.directory / name, "replkernel", STATE, TRAIN, KILL, AFTER)
    write_notebook(lab.directory / "other.ipynb", "replkernel", HOLD, gpus=2)
    open_notebook(lab, browser, "a", name, 4)
    browser.do("theme", "a", theme=THEMES[theme])
    browser.do("press", "a", query='.lm-TabBar-tab[data-id="filebrowser"]')  # Which is in the way.
    browser.do("press", "a", query='.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]')
    play(lab, browser, Camera(browser, theme, lab.directory))
    for page in "ab":
        browser.do("close", page)
    for kernel in lab.call("GET", "api/kernels"):
        lab.call("DELETE", f"api/kernels/{kernel['id']}")


@contextmanager
def directories() -> Iterator[Path]:
    """Have Jupyter and replkernel keep all of theirs in a directory that goes with its end."""
    place = Path(tempfile.mkdtemp(prefix="pictures-"))
    try:
        for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            os.environ[variable] = str(place / variable.lower())
        os.environ["REPLKERNEL_HOST_NAME"] = "workstation"
        (place / "notebooks").mkdir()
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Take them all."""
    INTO.mkdir(parents=True, exist_ok=True)
    with directories() as place:
        program = (str(ROOT / "examples" / "run.py"), "--data", os.environ["JUPYTER_DATA_DIR"])
        with lab_in_browser(place / "notebooks", *program) as (lab, browser):
            for theme in sys.argv[1:] or THEMES:
                take(lab, browser, theme)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
