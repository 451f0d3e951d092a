"""Whole objects out of a JSON list whose file is cut or damaged."""

from __future__ import annotations

import json
from typing import Any

MOST_OBJECTS = 20_000_000


def whole_objects(data: bytes, at: int = 0) -> list[dict[str, Any]]:
    """Return the objects of a list from byte ``at`` (its first ``[`` when 0) up to where the text ends or is no JSON."""
    words = data[at:].decode("utf-8", "replace")
    place = 0 if at else words.find("[") + 1
    entries: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    while len(entries) < MOST_OBJECTS:
        while place < len(words) and words[place] in " \r\n\t,":
            place += 1
        if place >= len(words) or words[place] != "{":
            break
        try:
            entry, place = decoder.raw_decode(words, place)
        except (ValueError, RecursionError):
            break
        entries.append(entry)
    return entries
