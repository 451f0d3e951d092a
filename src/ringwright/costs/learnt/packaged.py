"""Factors that ship with the package, as plain JSON values."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec

from ringwright.ground.errors import UsageError


def learnt_file(name: str, schema: str) -> dict[str, Any]:
    """Return one file of learnt factors; UsageError where it is of another schema, as after half an update."""
    held: dict[str, Any] = msgspec.json.decode(resources.files("ringwright.costs.learnt").joinpath(name).read_bytes())
    if held["schema"] != schema:
        raise UsageError(f"{name} has schema {held['schema']}, not {schema}", remedy="reinstall ringwright")
    return held
