"""OpenAPI documents of the scheduler's REST and the server extension's, made from handlers and their structs.

Law: nothing is written by hand that the handlers know; a method that is not described is not
served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

import msgspec

from replkernel_server.handlers.scheduler_base import Operation
from replkernel_server.scheduling.documents import Id, Why

VERSION = "1"
REFS = "#/components/schemas/{name}"
EVERYWHERE = {400: Why, 401: Why, 403: Why, 503: Why}
"""What every operation may answer: it does not fit, no token, not yours, the journal cannot be written."""


class Described(Protocol):
    """A handler that says what it takes and gives."""

    operations: ClassVar[dict[str, Operation]]


def openapi(
    addresses: Mapping[str, type[Described]],
    title: str = "replkernel scheduler",
    everywhere: Mapping[int, Any] = EVERYWHERE,
) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1) that describes `addresses`."""
    operations = [operation for handler in addresses.values() for operation in handler.operations.values()]
    shapes = dict.fromkeys(shape for operation in operations for shape in _shapes(operation, everywhere))
    schemas, components = msgspec.json.schema_components(shapes, ref_template=REFS)
    schema = dict(zip(shapes, schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION},
        "security": [{"token": []}],
        "paths": {
            address: {
                method: _operation(address, operation, schema, everywhere)
                for method, operation in handler.operations.items()
            }
            for address, handler in addresses.items()
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`token …`: what the scheduler's token file holds, or the server's.",
                }
            },
        },
    }


def _shapes(operation: Operation, everywhere: Mapping[int, Any]) -> list[Any]:
    taken = [] if operation.takes is None else [operation.takes]
    answers = [shape for given in operation.answers.values() for shape in _each(given)]
    answers = [shape for shape in answers if not isinstance(shape, str)]
    return [*taken, *answers, *everywhere.values(), *(query.shape for query in operation.query), Id]


def _operation(
    address: str, operation: Operation, schema: Mapping[Any, Any], everywhere: Mapping[int, Any]
) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema[Id]}
        for name in re.findall(r"{(\w+)}", address)
    ]
    parameters += [
        {
            "name": query.name,
            "in": "query",
            "required": query.required,
            "description": query.what,
            "schema": schema[query.shape],
        }
        for query in operation.query
    ]
    described: dict[str, Any] = {"summary": operation.summary, "parameters": parameters, "responses": {}}
    if operation.takes is not None:
        content = {"application/json": {"schema": schema[operation.takes]}}
        described["requestBody"] = {"required": True, "content": content}
    for status, given in sorted({**everywhere, **operation.answers}.items()):
        content = {
            shape if isinstance(shape, str) else "application/json": {
                "schema": {"type": "string"} if isinstance(shape, str) else schema[shape]
            }
            for shape in _each(given)
        }
        described["responses"][str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return described


def _each(given: object) -> tuple[Any, ...]:
    """Return the forms of one answer: a document, or a media type that is no JSON, or several of these."""
    return given if isinstance(given, tuple) else (given,)
