"""The JSON of a PyTorch execution trace: its schema, and its nodes one by one, also of a file that is cut."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ringwright.formats.sources.gate.salvage import whole_objects

KNOWN = re.compile(r"1\.(?:0|1)\.\d+(?:-chakra\..*)?$|^1\.[2-9]")
_START = re.compile(rb'"nodes"\s*:\s*\[')
_SCHEMA = re.compile(rb'"schema"\s*:\s*"([^"]{0,80})"')


class DocumentError(ValueError):
    """The file is no execution trace; ``args[0]`` says why."""


class _Outer(msgspec.Struct):
    nodes: list[msgspec.Raw]
    schema: str = ""
    pid: Any = None
    time: Any = None
    start_ts: Any = None


class NodeHead(msgspec.Struct):
    """Of every node: its name and what encloses it."""

    id: int
    name: str = ""
    parent: int | None = None
    ctrl_deps: int | None = None


@dataclass
class Document:
    """A file's facts and nodes; ``cut`` says in words what is missing at its end."""

    schema: str = ""
    pid: Any = None
    time: str = ""
    nodes: list[msgspec.Raw | bytes] = field(default_factory=list)
    cut: str = ""


def parse(data: bytes) -> Document:
    """Return a document; DocumentError for anything else. A cut file gives the nodes before the cut."""
    named = _SCHEMA.search(data[:65536])
    schema = named[1].decode("utf-8", "replace") if named else ""
    if named and not KNOWN.match(schema):
        raise DocumentError(f"schema '{schema}' is not known (1.0.1 to 1.1.0 are)")
    try:
        outer = msgspec.json.decode(data, type=_Outer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _salvaged(data, schema, str(error))
    return Document(schema or outer.schema, outer.pid, str(outer.time or ""), list(outer.nodes))


def _salvaged(data: bytes, schema: str, why: str) -> Document:
    """Return the whole nodes of a damaged file."""
    start = _START.search(data)
    if start is None or not schema:
        raise DocumentError(f"no execution trace: {why[:160]}")
    nodes = whole_objects(data, start.end())
    if not nodes:
        raise DocumentError(f"no node can be read: {why[:160]}")
    return Document(schema, nodes=[json.dumps(node).encode() for node in nodes], cut=why[:160])


def link_of(raw: msgspec.Raw | bytes) -> NodeHead | None:
    """Return a node's name and parent, None for what is no node."""
    try:
        return _LINK.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def node_of(raw: msgspec.Raw | bytes) -> dict[str, Any] | None:
    """Return a whole node, None for what is none."""
    try:
        node = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return node if isinstance(node, dict) else None


_LINK = msgspec.json.Decoder(NodeHead)


def values(node: dict[str, Any], side: str) -> list[Any]:
    """Return the values of ``inputs`` or ``outputs``: a list in older schemas, an object in newer ones."""
    held = node.get(side)
    if isinstance(held, dict):
        held = held.get("values")
    return held if isinstance(held, list) else []


def types(node: dict[str, Any], side: str) -> list[Any]:
    """Return the types beside :func:`values`."""
    held = node.get(side)
    listed = held.get("types") if isinstance(held, dict) else node.get(f"{side.removesuffix('s')}_types")
    return listed if isinstance(listed, list) else []


def attributes(node: dict[str, Any]) -> dict[str, Any]:
    """Return the typed attributes of newer schemas by name."""
    held = node.get("attrs")
    entries = held if isinstance(held, list) else []
    return {
        entry["name"]: entry.get("value")
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }
