"""Programs that searches found, kept as files under a name made of their question: the same question costs nothing again.

A file holds the program's steps, layout and knobs, no times: those are worked out anew, and so is whether the program is legal.
What cannot be read, is of another version, or holds numbers that no program of the question has, counts as not kept.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from ringwright.algorithms.declared_order import Order
from ringwright.ground import drafts
from ringwright.ground.cache_folder import cache_folder
from ringwright.ground.errors import RingwrightError
from ringwright.model.program import Affine, Block, Cost, Layout, Op, Program, Step

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

FORMAT = 3
MOST_BYTES = 256 << 20
MOST_OF_BLOCK = 1 << 24  # moves
ARRAYS = ("src", "dst", "chunk", "to")
UNREADABLE = (
    OSError,
    ValueError,  # msgspec's errors too
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    MemoryError,
    RecursionError,
    NotImplementedError,  # a compression that the zip module lacks
    zipfile.BadZipFile,
    zlib.error,
)
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Some = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]


class KeptBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block of a kept program: of each field its pattern, or how many numbers it has in the list of its name."""

    op: int
    shape: tuple[Count, ...]
    span: Some
    channel: Count
    multicast: bool
    fields: tuple[Affine | Count | None, ...]


class KeptStep(msgspec.Struct, frozen=True):
    """A step of a kept program."""

    label: str
    loop: Count
    blocks: list[KeptBlock]


class KeptProgram(msgspec.Struct, frozen=True):
    """All of a kept program but its numbers; ``layout`` is chunks, parts of a block, and slots."""

    format: int
    name: str
    steps: list[KeptStep]
    layout: tuple[Count, Some, Count]
    cost: Cost
    channels: Some
    protocol: str
    knobs: Mapping[str, Any]
    joins: Count | None  # of a declared order


def folder() -> Path:
    """Return where programs are kept: ``RINGWRIGHT_PROGRAMS``, else a folder of the user's cache."""
    return cache_folder("programs", "RINGWRIGHT_PROGRAMS")


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


def keep(name: str, program: Program) -> bytes | None:
    """Write a program under a name, and return what is written; where that cannot be done nothing else happens."""
    data = packed(program)
    if data is not None:
        with suppress(OSError, RingwrightError):
            folder().mkdir(parents=True, exist_ok=True)
            drafts.write(folder() / f"{name}.npz", data)
    return data


def packed(program: Program) -> bytes | None:
    """Return a program as it is kept; None for one that cannot be."""
    order = program.schedule
    if program.aggregators or program.streams or program.layout.before is not None:
        return None
    if order is not None and not isinstance(order, Order):
        return None
    listed: dict[str, list[np.ndarray]] = {each: [] for each in ARRAYS}
    steps = [_kept_step(step, listed) for step in program.steps()]
    layout = program.layout
    told = KeptProgram(
        FORMAT,
        program.name,
        steps,
        (layout.n_chunks, layout.parts, layout.n_slots),
        program.cost,
        program.channels,
        program.protocol,
        program.knobs,
        None if order is None else order.joins,
    )
    arrays = {each: np.concatenate(rows) if rows else np.zeros(0, np.int64) for each, rows in listed.items()}
    template = np.zeros(0, np.int64) if layout.template is None else layout.template
    file = io.BytesIO()
    try:
        text = np.frombuffer(msgspec.json.encode(told), np.uint8)
        src, dst, chunk, to = (arrays[each] for each in ARRAYS)
        sizes = layout.chunk_bytes
        before, after = (np.zeros(0, np.int64),) * 2 if order is None else (order.before, order.after)
        lists = {"src": src, "dst": dst, "chunk": chunk, "to": to, "before": before, "after": after}
        np.savez_compressed(file, told=text, chunk_bytes=sizes, template=template, **lists)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return None
    return file.getvalue()


def _kept_step(step: Step, listed: dict[str, list[np.ndarray]]) -> KeptStep:
    """Return a step as plain data; what it lists goes to the end of the list of its name."""
    blocks = []
    for block in step.blocks:
        fields: list[Affine | int | None] = []
        for each in ARRAYS:
            value = getattr(block, each)
            if isinstance(value, np.ndarray):
                listed[each].append(value)
                value = len(value)
            fields.append(value)
        blocks.append(KeptBlock(int(block.op), block.shape, block.span, block.channel, block.multicast, tuple(fields)))
    return KeptStep(step.label, step.loop, blocks)


def kept(name: str, collective: Collective) -> Program | None:
    """Return the program that was kept under a name; None where there is none, or it cannot be read."""
    path = folder() / f"{name}.npz"
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        return unpacked(path.read_bytes(), collective)
    except OSError:
        return None


def unpacked(data: bytes, collective: Collective, *, at_once: bool = True) -> Program | None:
    """Return the program of a collective as it is kept; None where it cannot be read.

    Its steps are read ``at_once``, else when they are asked for, which raises ValueError where they are none: of what was packed
    a moment ago.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            if sum(each.file_size for each in file.zip.infolist()) > 16 * MOST_BYTES:
                return None
            arrays = {each: file[each] for each in (*ARRAYS, "before", "after", "chunk_bytes", "template")}
            told = msgspec.json.decode(file["told"].tobytes(), type=KeptProgram)
        program = _read(told, arrays, collective) if told.format == FORMAT else None
        if program is not None and at_once:
            program.make_steps()
        return program
    except UNREADABLE:
        return None


def _read(told: KeptProgram, arrays: Mapping[str, np.ndarray], collective: Collective) -> Program:
    """Return the program; raise ValueError where a number is none that a program of this collective can have."""
    if any(array.ndim != 1 or array.dtype != np.int64 for array in arrays.values()):
        raise ValueError("numbers that are no rows of int64")
    n_chunks, parts, n_slots = told.layout
    template = arrays["template"] if len(arrays["template"]) else None
    layout = Layout(n_chunks, arrays["chunk_bytes"], parts, n_slots, template)
    if n_chunks != parts * collective.n_blocks or (template is not None and len(template) != layout.slots):
        raise ValueError("chunks of other blocks")
    _within(arrays["chunk_bytes"], collective.size_bytes + 1)
    _within(arrays["template"], n_chunks)
    return Program(
        told.name,
        collective,
        layout,
        cache(lambda: list(_steps(told.steps, arrays, collective.p, layout.slots))),
        len(told.steps),
        told.cost,
        protocol=told.protocol,
        channels=told.channels,
        knobs=told.knobs,
        schedule=None if told.joins is None else Order(arrays["before"], arrays["after"], told.joins),
    )


def _steps(steps: Sequence[KeptStep], arrays: Mapping[str, np.ndarray], p: int, slots: int) -> Iterator[Step]:
    begin, loop = dict.fromkeys(ARRAYS, 0), 0
    for step in steps:
        if step.loop < loop:
            raise ValueError("a loop after a later one")
        blocks, loop = [], step.loop
        for each in step.blocks:
            values: list[Affine | np.ndarray | None] = []
            for name, field, limit in zip(ARRAYS, each.fields, (p, p, slots, slots), strict=True):
                value: Affine | np.ndarray | None = None
                if isinstance(field, int):
                    value = arrays[name][begin[name] : begin[name] + field]
                    begin[name] += field
                elif field is not None:
                    value = field
                below = limit - (each.span - 1 if limit == slots else 0)
                if not _is_surely_within(value, each.shape, below):
                    _within(_numbers(value, each.shape), below)
                values.append(value)
            src, dst, chunk, to = values
            if src is None or dst is None or chunk is None:
                raise ValueError("a block without ends")
            blocks.append(Block(Op(each.op), each.shape, src, dst, chunk, to, each.span, each.channel, each.multicast))
        yield Step(tuple(blocks), step.label, step.loop)


def _is_surely_within(value: Affine | np.ndarray | None, shape: tuple[int, ...], limit: int) -> bool:
    """Whether the weights of a pattern alone say that all its numbers are from 0 to below ``limit``: most do."""
    if not isinstance(value, Affine) or math.prod(shape) > MOST_OF_BLOCK or len(value.digits) not in (0, len(shape)):
        return False
    if any(modulus < 1 or max(abs(slope), abs(offset)) >= 1 << 31 for slope, offset, modulus, _ in value.digits):
        return False
    ends = [weight * (modulus - 1) for _, _, modulus, weight in value.digits]
    low, high = (value.base + sum(side(0, end) for end in ends) for side in (min, max))
    return low >= 0 and high < limit


def _numbers(value: Affine | np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a field; raise ValueError where they are not those of the range ``shape``."""
    if value is None:
        return np.zeros(0, np.int64)
    if math.prod(shape) > MOST_OF_BLOCK or (isinstance(value, Affine) and len(value.digits) not in (0, len(shape))):
        raise ValueError("a pattern over another range")
    numbers = value.values(shape) if isinstance(value, Affine) else value
    if len(numbers) != math.prod(shape):
        raise ValueError("a list over another range")
    return numbers


def _within(numbers: np.ndarray, limit: int) -> None:
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= limit):
        raise ValueError(f"a number that is not from 0 to {limit - 1}")
