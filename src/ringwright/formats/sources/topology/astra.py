"""ASTRA-sim's analytical network: four parallel lists, one entry a dimension, the innermost first.

The file is YAML, of which it uses little: ``key: [a, b]`` or ``key:`` and ``- a`` below, comments, numbers and words. That
subset is read here; anything else is an error with its line. GB are 2^30 bytes (its NetworkFunction.cpp), latency is in
nanoseconds a hop, and a Switch is two hops.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from ringwright.ground.errors import InputError
from ringwright.ground.units import GIB
from ringwright.model.topology import Topology
from ringwright.model.wiring import Dimension, lattice

KINDS = {"ring": "ring", "fullyconnected": "full", "switch": "switch"}
KEYS = ("topology", "npus_count", "bandwidth", "latency")
REMEDY = "topology: [ Ring ]  npus_count: [ 8 ]  bandwidth: [ 50.0 ]  latency: [ 500.0 ]"
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:\s*(.*)")
MOST_ENTRIES = 64


def read_astra(text: str, name: str) -> Topology:
    """Return the machine; raise InputError with file and line."""
    lists = _lists(text, name)
    missing = [key for key in KEYS if key not in lists]
    if missing:
        raise InputError(f"{name} lacks {', '.join(missing)}", where=name, remedy=REMEDY)
    count = len(lists["topology"][1])
    short = next((key for key in KEYS if len(lists[key][1]) != count), None)
    if short or not count:
        line = lists[short or "topology"][0]
        raise InputError(
            f"{short or 'topology'} has another length than topology", where=f"{name}:{line}", remedy=REMEDY
        )
    dimensions = []
    for number in range(count):
        line, words = lists["topology"]
        kind = KINDS.get(words[number].lower())
        if kind is None:
            raise InputError(
                f"'{words[number]}' is no topology", where=f"{name}:{line}", remedy="Ring, FullyConnected, Switch"
            )
        numbers = [_number(lists[key], number, key, name) for key in KEYS[1:]]
        size = int(numbers[0])
        if size != numbers[0] or size < 1:
            raise InputError(f"npus_count {numbers[0]:g} is no count", where=f"{name}:{lists['npus_count'][0]}")
        dimensions.append(Dimension(kind, size, numbers[1] * GIB, numbers[2] * 1e-9, f"dim{number}"))
    if math.prod(dimension.size for dimension in dimensions) > 1 << 20:
        raise InputError(f"{name} describes more than 1,048,576 ranks", where=f"{name}:{lists['npus_count'][0]}")
    return lattice(Path(name).stem, dimensions, provenance="ASTRA-sim analytical network, GB = 2^30 bytes")


def _number(entry: tuple[int, list[str]], number: int, key: str, name: str) -> float:
    line, words = entry
    try:
        value = float(words[number])
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e15:
        raise InputError(f"'{words[number]}' is no {key}", where=f"{name}:{line}", remedy=REMEDY)
    return value


def _lists(text: str, name: str) -> dict[str, tuple[int, list[str]]]:
    """Return line and entries of each key."""
    lists: dict[str, tuple[int, list[str]]] = {}
    key = ""
    for line, raw in enumerate(text.splitlines(), 1):
        content = re.sub(r"(^|\s)#.*", "", raw).strip()
        if not content or content == "---":
            continue
        match = _KEY.fullmatch(content)
        if match:
            key = match[1]
            if key in lists:
                raise InputError(f"{key} is given twice", where=f"{name}:{line}")
            lists[key] = (line, _entries(match[2], name, line))
        elif content.startswith("-") and key:
            lists[key][1].extend(_entries(content[1:].strip(), name, line))
        else:
            raise InputError(f"'{content[:60]}' is not understood", where=f"{name}:{line}", remedy=REMEDY)
        if len(lists) > MOST_ENTRIES or len(lists[key][1]) > MOST_ENTRIES:
            raise InputError(f"more than {MOST_ENTRIES} entries", where=f"{name}:{line}")
    return lists


def _entries(text: str, name: str, line: int) -> list[str]:
    if text.startswith("["):
        if not text.endswith("]"):
            raise InputError("a list does not end on its line", where=f"{name}:{line}", remedy=REMEDY)
        text = text[1:-1]
        return [word.strip().strip("\"'") for word in text.split(",") if word.strip()]
    return [text.strip("\"'")] if text else []
