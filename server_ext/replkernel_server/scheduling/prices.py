"""Prices as an administrator writes them: `H100=4.5 A100=1.8 other=1 host=0.4 currency=EUR`.

Law: pure; a word that makes no sense is refused by name, with one that works.
"""

from __future__ import annotations

from math import isfinite

from replkernel_scheduler.types import Prices

from replkernel.leasing.models import model_name
from replkernel_server.errors import ServiceSettingError

PRICE_MAX = 1e6
MODELS_MAX = 100
CURRENCY_CHARS_MAX = 8


def read_prices(name: str, text: str) -> Prices | None:
    """Return the prices in the setting `name`; None: nothing is charged."""
    words = text.split()
    if not words:
        return None
    usual = Prices()
    host_hour, factor, standby, currency = 0.0, usual.factor, usual.standby, ""
    models: dict[str, float] = {}
    for word in words:
        key, _, value = word.partition("=")
        match key:
            case "host":
                host_hour = _number(name, word, value)
            case "factor":
                factor = _number(name, word, value)
            case "standby":
                standby = _number(name, word, value)
            case "currency":
                currency = _currency(name, word, value)
            case "other":
                models[""] = _number(name, word, value)
            case _:
                models[model_name(key)] = _number(name, word, value)
    if len(models) > MODELS_MAX:
        raise ServiceSettingError(
            f"{name} has prices of more than {MODELS_MAX} models: set other=PRICE for some."
        )
    return Prices(tuple(sorted(models.items())), host_hour, factor, standby, currency)


def _number(name: str, word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or not 0 <= value <= PRICE_MAX:
        raise ServiceSettingError(
            f"{name} has {word[:60]!r}, which is no NAME=NUMBER from 0 to {PRICE_MAX:.0f}: write a "
            "model and its price an hour, as in 'H100=4.5 other=1 host=0.4 currency=EUR'."
        )
    return value


def _currency(name: str, word: str, text: str) -> str:
    if text and text.isprintable() and len(text) <= CURRENCY_CHARS_MAX:
        return text
    raise ServiceSettingError(
        f"{name} has {word[:60]!r}: write a currency of 1 to {CURRENCY_CHARS_MAX} "
        "characters, as in currency=EUR."
    )
