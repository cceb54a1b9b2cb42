"""Writes `src/generated/live.ts`: the TypeScript types of what the server extension tells pages live.

They are made from the JSON schema of the msgspec structs, so that neither side can change alone. With
`--check` nothing is written: it fails if the file is not what would be written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from replkernel_server.handlers.history import NotDone
from replkernel_server.live.documents import Changes, Snapshot
from replkernel_server.scheduling.past import Past

from replkernel.protocol.points import ComparisonDocument, HistoryDocument

FILE = Path(__file__).parent / "src" / "generated" / "live.ts"
HEAD = """\
// What the server extension tells a page. Written by `make types` from the server's structs: change those.
"""
ASKED = (Past, HistoryDocument, ComparisonDocument, NotDone)
"""What a page asks for, beside what it is told live."""
REFERENCE = "#/$defs/"
WIDTH = 110


def typescript(roots: tuple[type[msgspec.Struct], ...]) -> str:
    """Return the types of these structs and of all that they name."""
    _, components = msgspec.json.schema_components((*roots, *ASKED), ref_template=REFERENCE + "{name}")
    parts = [HEAD] + [_interface(name, schema) for name, schema in sorted(components.items())]
    names = " | ".join(f"I{root.__name__}" for root in roots)
    return "\n".join([*parts, f"/** One message. */\nexport type Message = {names};\n"])


def _interface(name: str, schema: dict[str, Any]) -> str:
    lines = [f"/** {_first_line(schema.get('description', name))} */", f"export interface I{name} {{"]
    required = set(schema.get("required", ()))
    for field, shape in schema["properties"].items():
        optional = "" if field in required else "?"
        line = f"  {field}{optional}: {_type(shape)};"
        if len(line) > WIDTH:
            raise ValueError(f"{name}.{field} is wider than {WIDTH} characters: make it a struct of its own.")
        lines.append(line)
    return "\n".join([*lines, "}", ""])


def _type(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        return "I" + str(shape["$ref"]).removeprefix(REFERENCE)
    if "enum" in shape:
        return " | ".join(f"'{value}'" for value in shape["enum"])
    if "anyOf" in shape:
        return " | ".join(dict.fromkeys(_type(one) for one in shape["anyOf"]))
    match shape.get("type"):
        case "array":
            inner = _type(shape["items"])
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object" if isinstance(shape.get("additionalProperties"), dict):
            return f"Record<string, {_type(shape['additionalProperties'])}>"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as plain:
            return str(plain)
    raise ValueError(f"No TypeScript type is known for {shape}.")


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def main(arguments: list[str]) -> int:
    """Write the file, or check it; return the exit code."""
    text = typescript((Snapshot, Changes))
    if "--check" in arguments:
        if FILE.is_file() and FILE.read_text() == text:
            return 0
        sys.stderr.write(f"{FILE} is not what the server's structs say: run `make types`.\n")
        return 1
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
