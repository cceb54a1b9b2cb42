"""Writes what the lab extension says, and its translations, in the form of JupyterLab's language packs.

`server_ext/replkernel_server/locale` has the template (`replkernel.pot`), and for each language a `.po` that
people edit and the `.json` that JupyterLab reads. New messages come in untranslated, old ones leave.
Arguments are locales, whose languages are begun: ``python labextension/catalogue.py fr_FR``.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

from babel import Locale
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

HERE = Path(__file__).parent
PLACE = HERE.parent / "server_ext" / "replkernel_server" / "locale"
DOMAIN = "replkernel"
WITH_CONTEXT = "{}\x04{}"
"""How JupyterLab joins a message and its context."""
HEADER = "# What the lab extension says to people. `make translations` keeps it up to date.\n#"


def collected() -> Catalog:
    """Return the messages of the sources, with the files that they stand in."""
    done = subprocess.run(["node", str(HERE / "messages.mjs")], stdout=subprocess.PIPE, check=True)
    template = Catalog(project=DOMAIN, header_comment=HEADER, fuzzy=False)
    for one in json.loads(done.stdout):
        template.add(one["id"], locations=[(one["file"], one["line"])], context=one["context"] or None)
    return template


def written(catalog: Catalog) -> bytes:
    """Return a catalogue's text, without moments and line numbers: it changes only if its messages do."""
    out = io.BytesIO()
    write_po(out, catalog, width=110, omit_header=True, include_lineno=False)
    head = f'{HEADER}\nmsgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n'
    if catalog.locale is not None:
        head += f'"Language: {catalog.locale}\\n"\n"Plural-Forms: {catalog.plural_forms}\\n"\n'
    return head.encode() + b"\n" + out.getvalue().rstrip(b"\n") + b"\n"


def for_jupyterlab(catalog: Catalog) -> str:
    """Return what JupyterLab reads; what is not translated is left out, so it stays English."""
    found: dict[str, object] = {
        "": {
            "domain": DOMAIN,
            "language": str(catalog.locale).replace("_", "-"),
            "plural_forms": catalog.plural_forms,
        }
    }
    for message in catalog:
        if message.id and message.string:
            key = WITH_CONTEXT.format(message.context, message.id) if message.context else str(message.id)
            found[key] = [message.string]
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


def main(begun: list[str]) -> int:
    """Write all files; say how many messages wait for a translation, and end with 1 where some do."""
    template = collected()
    PLACE.mkdir(exist_ok=True)
    (PLACE / f"{DOMAIN}.pot").write_bytes(written(template))
    known = [path.name for path in PLACE.iterdir() if path.is_dir()]
    waiting = 0
    for name in sorted({*known, *begun}):
        place = PLACE / name / "LC_MESSAGES"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{DOMAIN}.po"
        locale = Locale.parse(name)
        catalog = read_po(io.BytesIO(path.read_bytes() if path.is_file() else b""), locale=locale)
        catalog.update(template, no_fuzzy_matching=True, update_header_comment=True)
        catalog.obsolete.clear()
        path.write_bytes(written(catalog))
        path.with_suffix(".json").write_text(for_jupyterlab(catalog))
        missing = sum(1 for message in catalog if message.id and not message.string)
        sys.stdout.write(f"{name}: {len(catalog)} messages, {missing} not translated\n")
        waiting += missing
    return 0 if waiting == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
