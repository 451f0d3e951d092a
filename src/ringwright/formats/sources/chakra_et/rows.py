"""Rows of events from single nodes of execution traces: all that a node says without the other ranks."""

from __future__ import annotations

import re

from ringwright.formats.sources.chakra_et.nodes import COLL, LOAD, SEND, STORE, Node
from ringwright.formats.sources.datatypes import datatype
from ringwright.formats.sources.kernel_names import classify
from ringwright.ground.trace_tables import Row

_TENSOR = re.compile(r"\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*,\s*(\d+)\s*,")


def operation(node: Node) -> tuple[str | None, str]:
    """Return the operation and its ground: from ``comm_type``, else from the kernel's name."""
    if node.op is not None:
        return node.op, "read"
    if "comm_type" in node.attributes:
        return "unknown", "read"
    kind = classify(node.name)
    return kind.op, "inferred"


def kernel_row(node: Node, position: int) -> Row:
    """Return the row of a kernel or a copy; ``position`` is the node's in the file."""
    phase = node.attributes.get("phase")  # of a step, as our own exports write it
    return {
        **dict.fromkeys(("kind", "kernel_class"), "memory" if node.type in (LOAD, STORE) else "compute"),
        "op": {LOAD: "load", STORE: "store"}.get(node.type),
        "phase": phase[:40] if isinstance(phase, str) and phase else None,
        "size_bytes": node.number("tensor_size"),
        **_ran(node, position),
    }


def call_row(node: Node, position: int) -> Row:
    """Return the row of a collective, send or receive. Sizes are ``comm_size`` as it stands, a peer is a global rank."""
    fields = _collective(node) if node.type == COLL else _p2p(node)
    return {"task": str(node.id), **fields, **_ran(node, position)}


def _ran(node: Node, position: int) -> Row:
    exact = node.number("duration_ps")
    lasted = node.duration_us * 1e-6 if node.duration_us else None
    stream = node.attributes.get("stream", node.attributes.get("tid"))
    return {
        "kernel": node.name,
        "stream": str(stream) if stream is not None else None,
        "line": position,
        "start_s": node.start_us * 1e-6 if node.start_us else None,
        "duration_s": exact * 1e-12 if exact is not None and exact >= 0 else lasted,
    }


def _collective(node: Node) -> Row:
    op, ground = operation(node)
    said = node.number("comm_size")
    said = said if said is not None and said >= 0 else None
    tensor = _TENSOR.search(node.values)
    count, width = (int(tensor[1]), int(tensor[2])) if tensor else (None, None)
    ran = classify(node.name)
    return {
        "kind": "collective",
        "op": op,
        **dict.fromkeys(("size_bytes", "sent_bytes", "received_bytes"), said),
        "count": count,
        "element_bytes": width,
        "datatype": datatype(node.types.strip("[]'\" ")),
        "ground": ground,
        "root": node.number("root_rank"),
        "algorithm": ran.algorithm,
        "protocol": ran.protocol,
        "kernel_class": ran.kernel_class if ran.op else None,
        "confidence": 1.0 if ground == "read" else 0.7,
    }


def _p2p(node: Node) -> Row:
    """Return a send or receive; a ``comm_type`` on it is the node's type and not a collective's."""
    size, tag = node.number("comm_size"), node.number("comm_tag")
    is_send = node.type == SEND
    return {
        "kind": "p2p",
        "op": "send" if is_send else "recv",
        "peer": node.number("comm_dst" if is_send else "comm_src"),
        "size_bytes": size,
        "sent_bytes": size if is_send else None,
        "received_bytes": None if is_send else size,
        "text": f"tag {tag}" if tag is not None else None,
    }
