"""Programs that searches found, kept as files under a name made of their question: the same question costs nothing again.

A file holds the program's steps, layout and knobs, no times: those are worked out anew, and so is whether the program is legal.
What cannot be read, or is of another version, counts as not kept.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright import drafts
from ringwright.algorithms.declared_order import Order
from ringwright.errors import RingwrightError
from ringwright.program import Affine, Block, Cost, Layout, Op, Program, Step, Term

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.topology import Topology

FORMAT = 2
MOST_BYTES = 256 << 20
ARRAYS = ("src", "dst", "chunk", "to")


def folder() -> Path:
    """Return where programs are kept: ``RINGWRIGHT_PROGRAMS``, else a folder of the user's cache."""
    given = os.environ.get("RINGWRIGHT_PROGRAMS", "")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if given else (Path(cache) if cache else Path.home() / ".cache") / "ringwright" / "programs"


def name_of(collective: Collective, topology: Topology, slug: str, knobs: Mapping[str, object], version: str) -> str:
    """Return the name of a question: a hash of all that its answer depends on."""
    digest = hashlib.sha256()
    said = (FORMAT, version, slug, sorted((name, repr(value)) for name, value in knobs.items()))
    group = list(collective.group)
    asked = (collective.op, collective.size_bytes, collective.dtype, collective.reduce_op, collective.root)
    digest.update(repr((said, asked, group, collective.counts, collective.commutative)).encode())
    for array in (topology.kinds, topology.src, topology.dst, topology.rate, topology.latency_s, topology.link_class):
        digest.update(np.ascontiguousarray(array).tobytes())
    hosts = None if topology.hosts is None else topology.hosts.tolist()
    loss = None if topology.loss is None else topology.loss.tolist()
    shared = [(group.name, group.rate, group.links.tolist()) for group in topology.groups]
    told = (topology.n_ranks, topology.axes, hosts, loss, shared, topology.faults, sorted(topology.aggregators.items()))
    digest.update(repr((told, topology.paths, topology.classes, sorted(topology.message_s.items()))).encode())
    return digest.hexdigest()


def keep(name: str, program: Program) -> None:
    """Write a program under a name; where that cannot be done it is not kept, and nothing else happens."""
    order = program.schedule
    if program.aggregators or program.streams or program.layout.before is not None:
        return
    if order is not None and not isinstance(order, Order):
        return
    steps: list[dict[str, object]] = []
    listed: dict[str, list[np.ndarray]] = {each: [] for each in ARRAYS}
    for step in program.steps():
        blocks = []
        for block in step.blocks:
            fields = {each: _field(getattr(block, each), listed[each]) for each in ARRAYS}
            blocks.append([int(block.op), block.shape, block.span, block.channel, block.multicast, fields])
        steps.append({"label": step.label, "loop": step.loop, "blocks": blocks})
    layout, cost = program.layout, program.cost
    told = {
        "format": FORMAT,
        "name": program.name,
        "steps": steps,
        "layout": [layout.n_chunks, layout.parts, layout.n_slots],
        "cost": [[[t.messages, t.size_bytes, t.level] for t in cost.terms], cost.sent_bytes, cost.reduced_bytes],
        "flags": [cost.is_even, cost.hides],
        "channels": program.channels,
        "protocol": program.protocol,
        "knobs": dict(program.knobs),
        "joins": None if order is None else order.joins,
    }
    arrays = {each: np.concatenate(rows) if rows else np.zeros(0, np.int64) for each, rows in listed.items()}
    template = np.zeros(0, np.int64) if layout.template is None else layout.template
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    file = io.BytesIO()
    try:
        src, dst, chunk, to = (arrays[each] for each in ARRAYS)
        sizes = layout.chunk_bytes
        before, after = (np.zeros(0, np.int64),) * 2 if order is None else (order.before, order.after)
        waits = np.stack((before, after))
        np.savez_compressed(
            file, told=text, chunk_bytes=sizes, template=template, src=src, dst=dst, chunk=chunk, to=to, waits=waits
        )
        folder().mkdir(parents=True, exist_ok=True)
        drafts.write(folder() / f"{name}.npz", file.getvalue())
    except (OSError, RingwrightError, TypeError):
        return


def _field(value: Affine | np.ndarray | None, listed: list[np.ndarray]) -> object:
    """Return a field as plain data: None, digits and base, or how many numbers it has in the list of its name."""
    if value is None:
        return None
    if isinstance(value, Affine):
        return [value.digits, value.base]
    listed.append(value)
    return len(value)


def kept(name: str, collective: Collective) -> Program | None:
    """Return the program that was kept under a name; None where there is none, or it cannot be read."""
    path = folder() / f"{name}.npz"
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {each: file[each] for each in (*ARRAYS, "waits", "chunk_bytes", "template")}
            told = json.loads(file["told"].tobytes())
        return _read(told, arrays, collective) if told.get("format") == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, zipfile.BadZipFile, AttributeError):
        return None


def _read(told: Mapping[str, Any], arrays: Mapping[str, np.ndarray], collective: Collective) -> Program:
    steps = list(_steps(told["steps"], arrays))
    n_chunks, parts, n_slots = (int(each) for each in told["layout"])
    template = arrays["template"] if len(arrays["template"]) else None
    layout = Layout(n_chunks, np.asarray(arrays["chunk_bytes"], np.int64), parts, n_slots, template)
    terms, sent, reduced = told["cost"]
    cost = Cost(tuple(Term(*term) for term in terms), sent, reduced, *told["flags"])
    return Program(
        str(told["name"]),
        collective,
        layout,
        lambda: steps,
        len(steps),
        cost,
        protocol=str(told["protocol"]),
        channels=int(told["channels"]),
        knobs=told["knobs"],
        schedule=_order(told["joins"], arrays, sum(block.count for step in steps for block in step.blocks)),
    )


def _order(joins: int | None, arrays: Mapping[str, np.ndarray], moves: int) -> Order | None:
    """Return the declared order; raise ValueError where it names what is no move and no join."""
    if joins is None:
        return None
    before, after = np.asarray(arrays["waits"], np.int64)
    if joins < 0 or any(((each < 0) | (each >= moves + int(joins))).any() for each in (before, after)):
        raise ValueError("an order of moves that are not there")
    return Order(before, after, int(joins))


def _steps(steps: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]) -> Iterator[Step]:
    begin = dict.fromkeys(ARRAYS, 0)
    for step in steps:
        blocks = []
        for op, shape, span, channel, multicast, fields in step["blocks"]:
            values: dict[str, Affine | np.ndarray | None] = {}
            for each, field in fields.items():
                if isinstance(field, int):
                    values[each] = arrays[each][begin[each] : begin[each] + field]
                    begin[each] += field
                else:
                    values[each] = None if field is None else Affine(tuple(map(tuple, field[0])), int(field[1]))
            src, dst, chunk, to = (values[each] for each in ARRAYS)
            if src is None or dst is None or chunk is None:
                raise ValueError("a block without ends")
            blocks.append(Block(Op(op), tuple(shape), src, dst, chunk, to, span, channel, multicast))
        yield Step(tuple(blocks), str(step["label"]), int(step["loop"]))
