"""Gigabytes of COLL lines at the speed of memory, with a known answer: for measuring readers, not for meaning.

A block is a matrix of bytes: one row per line, a template per (call, rank), the changing digits written in by
column and the unused places dropped. Order, pointers, launch counts and some sizes change from block to block;
about one line in a hundred is then cut, prefixed or truncated in place.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringwright.ground.errors import UsageError
from ringwright_lab.testing.nccl_dialect import dialect
from ringwright_lab.testing.nccl_dirt import stamp
from ringwright_lab.testing.nccl_fields import PRINTED_NAME, RELEASES, CollText
from ringwright_lab.testing.nccl_job import BFLOAT16, FLOAT32, NcclJob, make_job, size_of
from ringwright_lab.testing.nccl_log import write_log
from ringwright_lab.testing.nccl_placement import JobPlacement, place
from ringwright_lab.testing.nccl_truth import LogTruth

_RELEASE = "2.26"
_GPUS_PER_HOST = 8
_BLOCK_LINES = 48_000
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)

# What stands in a template where a block writes: lengths are the room that the field has.
_OP_COUNT_ROOM, _POINTER_ROOM, _COUNT_ROOM = 7, 12, 10

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


@dataclass
class _Plan:
    """One step's calls, and the template and field places of every line they leave."""

    calls: list[tuple[str, str, int, int, bool]]  # op, role, elements, datatype, whether the count varies
    templates: Bytes
    places: dict[str, Numbers]  # field -> first column, by template row
    elements: Numbers
    varies: NDArray[np.bool_]
    rank_of: Numbers  # by template row
    call_of: Numbers


@dataclass
class _Ledger:
    """Counts of what was written."""

    steps_by_size: Counter[tuple[int, int]] = field(default_factory=Counter)  # (call, elements) -> steps
    lines: Counter[str] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)  # by call


def write_coll_log(
    path: str | Path, size_bytes: int, ranks: int = 64, seed: int = 0, dirty: float = 0.01
) -> dict[str, Any]:
    """Write about ``size_bytes`` of NCCL 2.26 log to ``path`` and return its truth (see ``write_log``).

    ``ranks`` is a multiple of 16: 8 GPUs per host, tensor parallel inside a host, data parallel across. INIT lines
    come first, so that every record resolves. Memory stays at a few tens of MB.
    """
    if ranks % 16 or ranks <= 0:
        raise UsageError(f"{ranks} ranks do not fill two hosts of 8", remedy="choose a multiple of 16, for example 64")
    job = make_job(ranks // _GPUS_PER_HOST, _GPUS_PER_HOST, tp=_GPUS_PER_HOST, seed=seed)
    head = write_log(job, _RELEASE, subsystems=("INIT", "ENV"), finish="running")
    placement = place(job)
    plan = _plan(job, placement)
    ledger, numbers = _Ledger(), np.random.default_rng(seed)
    draw = random.Random(f"bulk {seed}")  # noqa: S311
    steps = max(1, _BLOCK_LINES // len(plan.templates))
    with Path(path).open("wb") as out:
        written = out.write(head.text)
        first_step = 1
        while written < size_bytes:
            block, lengths, calls = _block(plan, steps, first_step, numbers, ledger)
            written += out.write(_spoil(block, lengths, calls, dirty, draw, ledger))
            first_step += steps
    return _truth(job, plan, ledger, head.text.count(b"\n"), written)


# ------------------------------------------------------------------------------------------------------- the pattern
def _step_calls() -> list[tuple[str, str, int, int, bool]]:
    layer = [
        ("all-reduce", "tp", 4096 * 4096, BFLOAT16, False),
        ("all-gather", "tp", 512 * 4096, BFLOAT16, False),
        ("reduce-scatter", "tp", 512 * 4096, BFLOAT16, False),
        ("all-reduce", "tp", 512 * 4096, BFLOAT16, True),
    ]
    buckets = [("all-reduce", "dp", elements, FLOAT32, False) for elements in (6_553_600, 7_082_240, 6_829_568)]
    ends = [("broadcast", "tp", 4096, 4, False), ("all-reduce", "world", 1, FLOAT32, False)]
    return layer * 8 + buckets * 2 + ends


def _plan(job: NcclJob, placement: JobPlacement) -> _Plan:
    calls = _step_calls()
    texts: list[tuple[bytes, dict[str, int]]] = []
    rank_of, call_of = [], []
    for number, (op, role, _elements, datatype, _varies) in enumerate(calls):
        for index in job.of_role(role):
            for rank, member in enumerate(job.communicators[index].members):
                texts.append(_template(placement, index, rank, member, op, datatype))
                rank_of.append(member)
                call_of.append(number)
    width = max(len(text) for text, _ in texts)
    templates = np.zeros((len(texts), width), dtype=np.uint8)
    for row, (text, _) in enumerate(texts):
        templates[row, : len(text)] = np.frombuffer(text, dtype=np.uint8)
    names = ("opCount", "sendbuff", "recvbuff", "count")
    places = {name: np.array([where[name] for _, where in texts], dtype=np.int64) for name in names}
    return _Plan(
        calls,
        templates,
        places,
        np.array([call[2] for call in calls], dtype=np.int64),
        np.array([call[4] for call in calls]),
        np.array(rank_of, dtype=np.int64),
        np.array(call_of, dtype=np.int64),
    )


def _template(
    placement: JobPlacement, index: int, rank: int, member: int, op: str, datatype: int
) -> tuple[bytes, dict[str, int]]:
    """Return one line with its fields blank (zero bytes) and where each field begins."""
    process, who = placement.processes[member], placement.identities[index][rank]
    words = dialect(_RELEASE)
    coll = CollText(PRINTED_NAME[op], 0, 1, 1, 0, datatype, 0, who.pointer, who.nranks, process.stream)
    text = words.line(process.host, process.pid, process.pid, process.device, words.coll_line(coll)) + "\n"
    where: dict[str, int] = {}
    for name, old, room in (
        ("opCount", "opCount 0", _OP_COUNT_ROOM),
        ("sendbuff", "sendbuff 0x1", _POINTER_ROOM),
        ("recvbuff", "recvbuff 0x1", _POINTER_ROOM),
        ("count", " count 0", _COUNT_ROOM),
    ):
        where[name] = text.index(old) + len(old) - 1
        text = text.replace(old, old[:-1] + "\0" * room, 1)
    return text.encode(), where


# --------------------------------------------------------------------------------------------------------- the blocks
def _block(
    plan: _Plan, steps: int, first_step: int, numbers: np.random.Generator, ledger: _Ledger
) -> tuple[Bytes, Numbers, Numbers]:
    """Return the bytes of ``steps`` steps, the length of each line and the call of each line, in file order."""
    rows, ncalls = len(plan.templates), len(plan.calls)
    counts = np.tile(plan.elements, (steps, 1))
    factors = numbers.integers(1, 257, size=counts.shape)
    counts = np.where(plan.varies, counts // 256 * factors, counts)
    for call in range(ncalls):
        values, times = np.unique(counts[:, call], return_counts=True)
        for value, number in zip(values.tolist(), times.tolist(), strict=True):
            ledger.steps_by_size[call, value] += number
    step = np.repeat(np.arange(steps), rows)
    row = np.tile(np.arange(rows), steps)
    # Each rank is up to four calls ahead of the others, which keeps its own lines in order and mixes the ranks.
    ahead = numbers.random(int(plan.rank_of.max()) + 1) * 4
    order = np.argsort(step * ncalls + plan.call_of[row] + ahead[plan.rank_of[row]], kind="stable")
    step, row = step[order], row[order]
    matrix = plan.templates[row]
    launch = (first_step + step) * ncalls + plan.call_of[row]
    _write_digits(matrix, plan.places["opCount"][row], _OP_COUNT_ROOM, launch, 16)
    for name in ("sendbuff", "recvbuff"):
        pointers = 0x7F00_0000_0000 + numbers.integers(0, 2**31, size=len(row)) * 256
        _write_digits(matrix, plan.places[name][row], _POINTER_ROOM, pointers, 16)
    _write_digits(matrix, plan.places["count"][row], _COUNT_ROOM, counts[step, plan.call_of[row]], 10)
    flat = matrix.ravel()
    return flat[flat != 0], np.count_nonzero(matrix, axis=1).astype(np.int64), plan.call_of[row]


def _write_digits(matrix: Bytes, columns: Numbers, room: int, values: Numbers, base: int) -> None:
    """Write numbers into rows at their columns, right-aligned, leaving zero bytes where leading digits would be."""
    flat, width = matrix.reshape(-1), matrix.shape[1]
    at = np.arange(len(matrix)) * width + columns + room - 1
    left = values.copy()
    for place_number in range(room):
        digit = left & 15 if base == 16 else left % 10
        shown = _HEX[digit]
        if place_number:
            shown = np.where(left > 0, shown, 0).astype(np.uint8)
        flat[at - place_number] = shown
        left = left >> 4 if base == 16 else left // 10


# ----------------------------------------------------------------------------------------------------------- the dirt
def _spoil(block: Bytes, lengths: Numbers, calls: Numbers, dirty: float, draw: random.Random, ledger: _Ledger) -> bytes:
    """Damage some lines: half cut by the next and continued, four tenths prefixed, the rest ended early."""
    ledger.lines["logical"] += len(lengths)
    text = block.tobytes()
    ends = np.cumsum(lengths)
    chosen = sorted(draw.sample(range(len(lengths) - 1), round(dirty * len(lengths)))) if dirty else []
    parts: list[bytes] = []
    done, busy = 0, -1
    for line in chosen:
        if line <= busy:  # its neighbour was already moved
            continue
        begin, end = int(ends[line] - lengths[line]), int(ends[line])
        following = int(ends[line + 1])
        parts.append(text[done:begin])
        kind = draw.random()
        if kind < 0.5:
            cut = draw.randrange(begin + 8, end - 1)
            parts += [text[begin:cut], text[end:following], text[cut:end]]
            done, busy = following, line + 1
            ledger.lines["cut"] += 1
        elif kind < 0.9:
            lead = f"[1,{draw.randrange(64)}]<stdout>:" if kind < 0.7 else f"[{stamp(line / 1e3)}] "
            parts += [lead.encode(), text[begin:end]]
            done, busy = end, line
            ledger.lines["prefixed"] += 1
        else:
            parts += [text[begin : draw.randrange(begin + 8, begin + (end - begin) // 3)], b"\n"]
            done, busy = end, line
            ledger.lines["truncated"] += 1
            ledger.lost[int(calls[line])] += 1
    parts.append(text[done:])
    return b"".join(parts)


def _truth(job: NcclJob, plan: _Plan, ledger: _Ledger, head_lines: int, written: int) -> dict[str, Any]:
    truth = LogTruth(job, dialect(".".join(map(str, RELEASES[_RELEASE]))))
    truth.seen_ranks = set(range(job.ranks))
    records_lost: Counter[str] = Counter()
    for (call, elements), steps in sorted(ledger.steps_by_size.items()):
        op, role, _elements, datatype, _varies = plan.calls[call]
        for index in job.of_role(role):
            size = job.communicators[index].size
            truth.by_communicator[index] += steps
            for tally in (truth.logical, truth.raw):
                tally.add(op, size_of(op, elements, datatype, size), steps * size, steps)
    for call, lost in ledger.lost.items():
        op = plan.calls[call][0]
        records_lost[op] += lost
        for tally in (truth.logical, truth.raw):
            tally.records[op] -= lost
    truth.lines.update(ledger.lines)
    truth.lines["init"] = head_lines
    truth.lines["physical"] = head_lines + ledger.lines["logical"]
    facts = truth.as_dict()
    facts["records_lost"] = dict(sorted(records_lost.items()))
    facts["coll_records"] = sum(row["records"] for row in facts["operations"])
    facts["file_bytes"] = written
    return facts
