"""What the configuration files say, as the environment that a router reads: for every way of starting one.

Law: imports next to nothing where there is no file; what is wrong in one is said by the router, to whoever
runs a cell.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # As typing's own, whose import takes as long as all that is done here.
if TYPE_CHECKING:
    from collections.abc import MutableMapping

SECTION = "ReplkernelProvisioner"
_FILES = ("jupyter_replkernel_config.py", "jupyter_replkernel_config.json")


def as_text(value: object) -> str:
    """Return a setting's value as its environment variable has it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def configured_env() -> tuple[dict[str, str], list[str]]:
    """Return the environment variables that the files set, and the names in them that are no settings."""
    from replkernel.errors import SettingError
    from replkernel.launch.config_file import read_config_files
    from replkernel.launch.unknown_settings import KNOWN, PREFIX
    from replkernel.settings import CONFIG_FAULT

    chosen: dict[str, str] = {}
    unknown: list[str] = []
    try:
        for name, value in read_config_files()[SECTION].items():
            variable = f"{PREFIX}{name.upper()}"
            if variable in KNOWN:
                chosen[variable] = as_text(value)
            else:
                unknown.append(str(name))
    except SettingError as error:
        chosen[CONFIG_FAULT] = f"{error.value}\n{error.problem}"
    return chosen, unknown


def take_configured(env: MutableMapping[str, str]) -> None:
    """Put what the files say into `env`, if there is a file; it wins over what stands there."""
    from jupyter_core.paths import jupyter_config_path

    if any(os.path.exists(os.path.join(place, name)) for place in jupyter_config_path() for name in _FILES):
        env.update(configured_env()[0])
