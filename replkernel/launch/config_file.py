"""What a deployment wrote into ``jupyter_replkernel_config.py`` (or ``.json``), where Jupyter looks for such.

Applications of Jupyter read files of their own names only; this one is read for every client alike. Law: a
file that cannot be read is never passed over in silence.
"""

from __future__ import annotations

from traitlets.config import Config
from traitlets.config.loader import (
    ConfigFileNotFound,
    FileConfigLoader,
    JSONFileConfigLoader,
    PyFileConfigLoader,
)

from replkernel.errors import SettingError
from replkernel.settings import CONFIG_FILE


def read_config_files() -> Config:
    """Return what the files on Jupyter's configuration path say together, the user's own with the last word.

    Raises SettingError that names the file and what is wrong in it.
    """
    from jupyter_core.paths import jupyter_config_path

    merged = Config()
    for directory in reversed(jupyter_config_path()):
        loaders: tuple[FileConfigLoader, ...] = (
            JSONFileConfigLoader(f"{CONFIG_FILE}.json", path=directory),
            PyFileConfigLoader(f"{CONFIG_FILE}.py", path=directory),
        )
        for loader in loaders:
            merged.merge(_load(loader))
    return merged


def _load(loader: FileConfigLoader) -> Config:
    try:
        return loader.load_config()
    except ConfigFileNotFound:
        return Config()
    except Exception as error:  # the file is a program: it may raise anything
        shown = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(
            CONFIG_FILE,
            loader.full_filename or str(loader.path),
            f"it cannot be read ({shown[:300]})",
            "correct the file",
        ) from error
