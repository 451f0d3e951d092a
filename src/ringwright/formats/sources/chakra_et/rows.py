"""Rows of a Trace from the nodes of execution traces."""

from __future__ import annotations

import re
from typing import Any

from ringwright.formats.sources.chakra_et.job import KIND, ChakraJob, File, PendingCall
from ringwright.formats.sources.chakra_et.nodes import COLL, LOAD, SEND, STORE, Node
from ringwright.formats.sources.datatypes import datatype
from ringwright.formats.sources.kernel_names import classify

_TENSOR = re.compile(r"\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*,\s*(\d+)\s*,")


def operation(node: Node) -> tuple[str | None, str]:
    """Return the operation and its ground: from ``comm_type``, else from the kernel's name."""
    if node.op is not None:
        return node.op, "read"
    if "comm_type" in node.attributes:
        return "unknown", "read"
    kind = classify(node.name)
    return kind.op, "inferred"


def emit_kernel(job: ChakraJob, file: File, node: Node, position: int) -> int:
    """Write a kernel or a copy and return its row."""
    is_memory = node.type in (LOAD, STORE)
    return job.gathered.events.add(
        kind="memory" if is_memory else "compute",
        op={LOAD: "load", STORE: "store"}.get(node.type),
        rank=file.rank,
        kernel=node.name,
        kernel_class="memory" if is_memory else "compute",
        stream=_stream(node),
        phase=_phase(node),
        size_bytes=node.number("tensor_size"),
        multiplicity=1,
        records=1,
        source=KIND,
        file=file.name,
        line=position,
        ground="read",
        confidence=1.0,
        **_times(node, file.rank),
    )


def _times(node: Node, rank: int) -> dict[str, Any]:
    start = node.start_us * 1e-6 if node.start_us else None
    exact = node.number("duration_ps")
    lasted = node.duration_us * 1e-6 if node.duration_us else None
    return {
        "start_s": start,
        "duration_s": exact * 1e-12 if exact is not None and exact >= 0 else lasted,
        "clock": f"gpu:{rank}" if start is not None else None,
    }


def _phase(node: Node) -> str | None:
    """Return the part of a step that a node says it is in, as our own exports write it."""
    phase = node.attributes.get("phase")
    return phase[:40] if isinstance(phase, str) and phase else None


def _stream(node: Node) -> str | None:
    stream = node.attributes.get("stream", node.attributes.get("tid"))
    return str(stream) if stream is not None else None


def emit_calls(job: ChakraJob, world: int | None) -> None:
    """Write the calls, now that the number of ranks is known."""
    counters: dict[tuple[int, int], int] = {}
    rows: list[int] = []
    for call in job.calls:
        number = _communicator(job, call, world)
        facts = job.gathered.of(number)
        facts["ranks"].add(call.rank)
        is_collective = call.node.type == COLL
        key = number, call.rank
        sequence = counters.get(key, 0) if is_collective else None
        if is_collective:
            counters[key] = counters.get(key, 0) + 1
        members = facts["members"] or []
        common = {
            "communicator": number,
            "sequence": sequence,
            "rank": call.rank,
            "nranks": facts["size"],
            "comm_rank": members.index(call.rank) if call.rank in members else None,
            "multiplicity": 1,
            "records": 1,
            "task": str(call.node.id),
            "stream": _stream(call.node),
            "kernel": call.node.name,
            "source": KIND,
            "file": call.file,
            "line": call.number,
        }
        fields = _collective(call.node, facts["size"]) if is_collective else _p2p(call, members)
        rows.append(job.gathered.events.add(**common, **fields, **_times(call.node, call.rank)))
    for file in job.files:
        file.events |= {node: rows[position] for node, position in file.calls.items()}
    _say_sizes(job)


def _communicator(job: ChakraJob, call: PendingCall, world: int | None) -> int:
    """Return the group: named by ``pg_name``, or by the dimensions that take part, else all ranks."""
    held = call.node.attributes
    name, dims = held.get("pg_name"), held.get("involved_dim")
    everyone = list(range(world)) if world else []
    if name not in (None, ""):
        ranks = job.groups.get(str(name))
        if ranks is not None:
            return job.gathered.communicator(str(name), name=f"process group {name}", members=ranks or everyone)
        return job.gathered.communicator(
            str(name), name=f"process group {name}, members not in the trace", ground="inferred", confidence=0.5
        )
    if isinstance(dims, list) and dims and not all(dims):
        label = "".join("1" if dim else "0" for dim in dims[:64])
        return job.gathered.communicator(f"dims:{label}", name=f"dimensions {label}", ground="inferred", confidence=0.5)
    return job.gathered.communicator("world", name="all ranks", members=everyone, ground="inferred", confidence=0.8)


def _collective(node: Node, p: int | None) -> dict[str, Any]:
    op, ground = operation(node)
    said = node.number("comm_size")
    said = said if said is not None and said >= 0 else None
    is_part = op in ("all-gather", "gather")
    size = said if not is_part else said * p if said is not None and p else None
    tensor = _TENSOR.search(node.values)
    count, width = (int(tensor[1]), int(tensor[2])) if tensor else (None, None)
    ran = classify(node.name)
    sent, received = said, said
    if op == "all-gather":
        received = size
    if op == "reduce-scatter":
        received = said // p if said is not None and p else None
    return {
        "kind": "collective",
        "op": op,
        "size_bytes": size,
        "sent_bytes": sent,
        "received_bytes": received,
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


def _p2p(call: PendingCall, members: list[int]) -> dict[str, Any]:
    """Return a send or receive; a ``comm_type`` on it is the node's type and not a collective's."""
    node = call.node
    other = node.number("comm_dst" if node.type == SEND else "comm_src")
    size = node.number("comm_size")
    peer = members.index(other) if other in members else other
    is_send = node.type == SEND
    return {
        "kind": "p2p",
        "op": "send" if is_send else "recv",
        "peer": peer,
        "size_bytes": size,
        "sent_bytes": size if is_send else None,
        "received_bytes": None if is_send else size,
        "ground": "read",
        "text": f"tag {node.number('comm_tag')}" if node.number("comm_tag") is not None else None,
        "confidence": 1.0,
    }


def _say_sizes(job: ChakraJob) -> None:
    if any(call.node.op in ("all-gather", "gather") for call in job.calls):
        job.gathered.claim(
            "comm_size of all-gather",
            "what one rank hands in",
            KIND,
            ground="assumed",
            confidence=0.8,
            note="the size column is comm_size x ranks; it is empty where the size of the group is not known",
        )


def emit_edges(job: ChakraJob) -> None:
    """Write what waits for what, now that every event has its row."""
    for file in job.files:
        for before, after, kind in file.edges:
            job.gathered.edges.add(src_event=file.events[before], dst_event=file.events[after], kind=kind)
