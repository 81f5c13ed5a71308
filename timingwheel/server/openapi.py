"""The OpenAPI document, made of the table of operations."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from timingwheel.server.operations import API_PATH, Operation
from timingwheel.wire.problems import PROBLEM_TYPE, Problem

_REF: Final = "#/components/schemas/{name}"
_VERSION: Final = "1.0.0"


def openapi_document(
    operations: tuple[Operation, ...], *, needs_token: bool = False
) -> dict[str, Any]:
    """Return the document, OpenAPI 3.1.

    Args:
        operations: what the API can be asked.
        needs_token: whether the server was started with tokens.
    """
    types: list[Any] = [Problem]
    for one in operations:
        types += [kind for kind in (one.query, one.body, one.returns) if kind]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        at = paths.setdefault(API_PATH + one.path, {})
        at[one.method.lower()] = _operation(one, schema_of, components)
    for kind in {one.query for one in operations if one.query is not None}:
        components.pop(schema_of[kind]["$ref"].rpartition("/")[2], None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "timingwheel",
            "version": _VERSION,
            "description": "Durable jobs over HTTP. Errors are RFC 9457 documents.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed where the server was started with tokens.",
                }
            },
        },
        "security": [{"token": []}] if needs_token else [{}, {"token": []}],
    }


def _operation(
    one: Operation, schema_of: dict[Any, Any], components: dict[str, Any]
) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in one.names
    ]
    if one.query is not None:
        whole = components[schema_of[one.query]["$ref"].rpartition("/")[2]]
        parameters += [
            {
                "name": name,
                "in": "query",
                "required": name in whole.get("required", ()),
                "schema": schema,
            }
            for name, schema in whole["properties"].items()
        ]
    parameters += [
        {"name": name, "in": "header", "schema": {"type": "string", **schema}}
        for name, schema in one.headers.items()
    ]
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.path.strip("/").partition("/")[0]],
        "parameters": parameters,
        "responses": {
            str(one.status): _done("Done.", one, schema_of),
            "default": _response("Refused.", PROBLEM_TYPE, schema_of[Problem]),
        },
    }
    if one.status == 201:
        found["responses"]["200"] = _done("It was there.", one, schema_of)
    if one.body is not None:
        content: dict[str, Any] = {"schema": schema_of[one.body]}
        if one.example is not None:
            content["example"] = one.example
        found["requestBody"] = {
            "required": one.needs_body,
            "content": {"application/json": content},
        }
    return found


def _done(description: str, one: Operation, schema_of: dict[Any, Any]) -> Any:
    response = _response(description, "application/json", schema_of[one.returns])
    headers = {
        name: {"required": True, "schema": {"type": "string", **schema}}
        for name, schema in one.sends.items()
    }
    return response | {"headers": headers} if headers else response


def _response(description: str, kind: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": schema}}}
