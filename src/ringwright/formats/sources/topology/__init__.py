"""Machines read from files: NCCL and RCCL topology XML, ``nvidia-smi topo -m``, TACCL, ASTRA-sim, and our own JSON.

``read_topology`` looks at the text, not at the name, to tell which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringwright.ground.errors import InputError, UsageError
from ringwright.model.topology import Topology

MOST_BYTES = 64 << 20
KINDS = ("nccl-xml", "nvidia-smi", "taccl", "astra", "json")
REMEDY = "NCCL topology XML, nvidia-smi topo -m, TACCL JSON, ASTRA-sim network yml, or JSON with n and edges"


def read_topology(path: str | Path, *, kind: str | None = None, boxes: int = 1, **knobs: Any) -> Topology:
    """Return the machine that a file describes.

    ``kind``: one of nccl-xml, nvidia-smi, taccl, astra, json, where the text does not tell. ``boxes``: how many of what one
    file describes (the first three kinds), joined by one non-blocking switch between their NICs. ``knobs`` go to the reader.
    Raises InputError with file, line and remedy where nothing can be made of it.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}", where=name, remedy=REMEDY) from error
    if len(data) > MOST_BYTES:
        raise InputError(f"{name} is larger than {MOST_BYTES >> 20} MiB: no description of a machine", where=name)
    return parse_topology(data.decode(errors="replace"), name=name, kind=kind, boxes=boxes, **knobs)


def parse_topology(text: str, *, name: str, kind: str | None = None, boxes: int = 1, **knobs: Any) -> Topology:
    """Return the machine that a text describes; ``name`` is told in errors. Otherwise as ``read_topology``."""
    chosen = sniff(text) if kind is None else kind
    if chosen not in KINDS:
        if kind is not None:
            raise UsageError(f"'{kind}' is no kind of machine file", remedy=f"one of: {', '.join(KINDS)}")
        raise InputError(f"{name} describes no machine that can be read", where=f"{name}:1", remedy=REMEDY)
    if not 1 <= boxes <= 1 << 14:
        raise UsageError(f"{boxes} boxes are not possible", remedy="1 to 16384")
    if boxes > 1 and chosen in ("astra", "json"):
        raise UsageError(f"{chosen} describes a whole machine, not a box", remedy="leave boxes out")
    if chosen not in ("astra", "json"):
        knobs["boxes"] = boxes
    try:
        return _reader(chosen)(text, name, **knobs)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise UsageError(f"the reader of {chosen} takes no such knob: {error}") from error
        raise


def sniff(text: str) -> str:
    """Return the kind of a text, or an empty string."""
    head = text.lstrip("\ufeff \t\r\n")
    if head.startswith("<"):
        return "nccl-xml"
    if head.startswith("{"):
        return "taccl" if '"gpus_per_node"' in head else "json"
    if "npus_count" in head:
        return "astra"
    return "nvidia-smi" if "GPU0" in head and "X" in head else ""


def _reader(kind: str) -> Callable[..., Topology]:
    from ringwright.formats.sources.topology.astra import read_astra
    from ringwright.formats.sources.topology.graph_json import read_graph
    from ringwright.formats.sources.topology.nccl_xml import read_nccl_xml
    from ringwright.formats.sources.topology.nvidia_smi import read_nvidia_smi
    from ringwright.formats.sources.topology.taccl import read_taccl

    readers: dict[str, Callable[..., Topology]] = {
        "nccl-xml": read_nccl_xml,
        "nvidia-smi": read_nvidia_smi,
        "taccl": read_taccl,
        "astra": read_astra,
        "json": read_graph,
    }
    return readers[kind]
