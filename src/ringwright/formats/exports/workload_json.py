"""A Workload as JSON that a person can read and write: one task, edge or payload a line, units in the names.

``sources.workload_json`` reads it back as it was. Fields that have their usual value are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import UsageError
from ringwright.model.workload import FORMAT, SCHEMA_VERSION

if TYPE_CHECKING:
    from ringwright.model.workload import Workload

EXPORTS = {"json": "workload_json"}
READER = "ringwright.formats.sources.programs.workload_json:read_workload"
UNITS = {"seconds": "time_s"}  # fields whose unit is not in their own name
LINES = ("classes", "tasks", "edges", "payloads", "resources", "values", "applied", "assumptions")


def workload_json(workload: Workload) -> bytes:
    """Return the file's bytes, UTF-8; UsageError for a setting of a rewrite that is no plain value."""
    document = _plain(workload, workload.name)
    head: dict[str, Any] = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "name": document["name"]}
    listed = [f" {_text(key)}: {_text(value)}" for key, value in head.items()]
    for key, value in document.items():
        if key in head:
            continue
        if key in LINES:
            rows = ",\n".join(f"  {_text(row)}" for row in value)
            listed.append(f" {_text(key)}: [\n{rows}\n ]")
        else:
            listed.append(f" {_text(key)}: {_text(value)}")
    return ("{\n" + ",\n".join(listed) + "\n}\n").encode()


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# branches: a case for each kind of value that JSON has
def _plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it: dataclasses as objects, sequences as lists, an infinite number as a word."""
    if hasattr(value, "__dataclass_fields__"):
        return {
            UNITS.get(each.name, each.name): _plain(getattr(value, each.name), f"{where} {each.name}")
            for each in fields(value)
            if not _is_usual(each, getattr(value, each.name))
        }
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise UsageError("a key that is no text", where=where, remedy="keys of settings are texts")
        return {key: _plain(each, f"{where} {key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, where) for each in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(f"{str(value)[:60]} cannot be written as JSON", where=where, remedy="numbers, texts and lists")


def _is_usual(field: Any, value: Any) -> bool:
    if field.default is not MISSING:
        return type(value) is type(field.default) and bool(value == field.default)
    return field.default_factory is not MISSING and bool(value == field.default_factory())
