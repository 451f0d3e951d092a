"""Whole objects out of a JSON list whose file is cut or damaged."""

from __future__ import annotations

import json
from typing import Any

MOST_OBJECTS = 20_000_000


def whole_objects(data: bytes, at: int = 0) -> list[dict[str, Any]]:
    """Return the objects of a list from byte ``at`` (its first ``[`` when 0) up to where the text ends or is no JSON."""
    words = data[at:].decode("utf-8", "replace")
    position = 0 if at else words.find("[") + 1
    entries: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    while len(entries) < MOST_OBJECTS:
        while position < len(words) and words[position] in " \r\n\t,":
            position += 1
        if position >= len(words) or words[position] != "{":
            break
        try:
            entry, position = decoder.raw_decode(words, position)
        except (ValueError, RecursionError):
            break
        entries.append(entry)
    return entries
