"""The rules of an MSCCL file that concern one gpu, thread block or step; numbers as in the format's list (V2 to V9)."""

from __future__ import annotations

import re
from collections.abc import Callable

from ringwright.formats.sources.elements import Element
from ringwright.formats.sources.findings import FileFindings
from ringwright.model.threadblocks.buffers import OPS
from ringwright.model.threadblocks.msccl import (
    MOST_AWAITED,
    MOST_CHANNELS,
    MOST_COUNT,
    MOST_PER_CHANNEL,
    MOST_STEPS,
    MOST_THREADBLOCKS,
    TYPES,
)
from ringwright.model.threadblocks.table import LETTERS, READS_SRC, RECEIVES, SENDS, WRITES_DST, Opcode

_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
HUGE = 1 << 60
Note = Callable[[str, str, int], None]  # rule, message, chunk


def number(
    element: Element,
    name: str,
    findings: FileFindings,
    *,
    default: int | None = None,
    least: int = -1,
    rank: int = -1,
    step: int = -1,
) -> int:
    """Return an attribute as an integer; note what is wrong with it and return its least value otherwise."""
    text = element.attributes.get(name)
    if text is None and default is not None:
        return default
    if text is None or _INTEGER.fullmatch(text) is None:
        what = f"<{element.tag}> has no {name}" if text is None else f"{name} is '{text[:40]}', not an integer"
        findings.add("attribute", what, element.line, rank=rank, step=step)
        return least
    value = int(text)
    if not least <= value <= HUGE:
        findings.add("attribute", f"{name} is {value}", element.line, rank=rank, step=step)
        return least
    return value


def check_gpu(gpu: Element, rank: int, coll: str, p: int, loop: int, findings: FileFindings) -> list[int]:
    """Return the chunks of the three buffers (V4)."""
    sizes = [number(gpu, f"{letter}_chunks", findings, least=0, rank=rank) for letter in LETTERS]
    op = OPS.get(coll)
    expected = (loop // p if op == "all-gather" else loop, loop // p if op == "reduce-scatter" else loop)
    for letter, size, wanted in zip(LETTERS, sizes, expected, strict=False):
        if size not in (0, wanted):
            text = f"{letter}_chunks is {size} where nchunksperloop asks for {wanted}"
            findings.add("chunks", text, gpu.line, rank=rank)
    return sizes


def check_threadblock(
    gpu: Element, rank: int, p: int, channels: int, findings: FileFindings
) -> dict[int, tuple[Element, int, int, int]]:
    """Return the thread blocks of a rank by number: element, peers and channel (V2, V5)."""
    steps: dict[int, tuple[Element, int, int, int]] = {}
    if len(gpu.children) > MOST_THREADBLOCKS:
        text = f"{len(gpu.children)} thread blocks, at the most {MOST_THREADBLOCKS}"
        findings.add("limits", text, gpu.line, rank=rank)
    for element in gpu.children:
        threadblock = number(element, "id", findings, least=0, rank=rank)
        send, recv, channel = (number(element, name, findings, rank=rank) for name in ("send", "recv", "chan"))
        if threadblock in steps or threadblock >= len(gpu.children):
            what = "occurs twice" if threadblock in steps else f"of {len(gpu.children)}: numbers have gaps"
            findings.add("limits", f"thread block {threadblock} {what}", element.line, rank=rank)
        for name, peer in (("send", send), ("recv", recv)):
            if peer == rank or peer >= p:
                text = f"thread block {threadblock}: {name} is {peer}" + (", the rank itself" if peer == rank else "")
                findings.add("peer", text, element.line, rank=rank)
        if not 0 <= channel < min(channels, MOST_CHANNELS):
            text = f"thread block {threadblock}: chan is {channel} of {channels} channels (at most {MOST_CHANNELS})"
            findings.add("limits", text, element.line, rank=rank)
        if len(element.children) > MOST_STEPS:
            text = f"thread block {threadblock}: {len(element.children)} steps, at the most {MOST_STEPS}"
            findings.add("limits", text, element.line, rank=rank)
        steps.setdefault(threadblock, (element, send, recv, channel))
    _check_directions(gpu, rank, steps, findings)
    return dict(sorted(steps.items()))


def _check_directions(
    gpu: Element, rank: int, steps: dict[int, tuple[Element, int, int, int]], findings: FileFindings
) -> None:
    for name, column in (("sending", 1), ("receiving", 2)):
        used: dict[int, int] = {}
        for row in steps.values():
            used[row[3]] = used.get(row[3], 0) + (int(row[column]) >= 0)  # type: ignore[arg-type]
        for channel, count in used.items():
            if count > MOST_PER_CHANNEL:
                text = f"{count} {name} thread blocks on channel {channel}, at the most {MOST_PER_CHANNEL}"
                findings.add("limits", text, gpu.line, rank=rank)


def check_step(
    step: Element,
    rank: int,
    threadblock: int,
    step_number: int,
    peers: tuple[int, int],
    sizes: list[int],
    findings: FileFindings,
) -> tuple[list[int], tuple[int, int] | None]:
    """Return the row of a step from its kind on (see thread blocks.Code), and the (thread block, step) it waits for, if any.

    Checks V2 (types), V5 (dense numbers, count), V6 (peers), V8 (indices).
    """

    def note(rule: str, message: str, chunk: int) -> None:
        text = f"thread block {threadblock}: {message}"
        findings.add(rule, text, step.line, rank=rank, step=step_number, chunk=chunk)

    values = {
        name: number(step, name, findings, rank=rank, step=step_number)
        for name in ("s", "srcoff", "dstoff", "cnt", "depid", "deps")
    }
    has_dep = number(step, "hasdep", findings, default=0, least=0, rank=rank, step=step_number)
    name = step.attributes.get("type", "")
    kind = TYPES.get(name)
    if kind is None:
        known = "residual add is not supported" if name == "ra" else f"not one of {', '.join(TYPES)}"
        note("attribute", f"type is '{name[:40]}': {known}", -1)
        kind = Opcode.NOP
    _check_numbers(values["s"], step_number, has_dep, note)
    buffers = [_buffer(step, key, note) for key in ("srcbuf", "dstbuf")]
    for verb, kinds, peer in (("send", SENDS, peers[0]), ("recv", RECEIVES, peers[1])):
        if kind in kinds and peer < 0:
            note("peer", f"type {name} without a {verb} peer", -1)
    if kind is not Opcode.NOP:
        if not 1 <= values["cnt"] <= MOST_COUNT:
            note("limits", f"cnt is {values['cnt']}, not 1 to {MOST_COUNT}", -1)
        _check_range(kind in READS_SRC, "src", buffers[0], values["srcoff"], values["cnt"], sizes, note)
        _check_range(kind in WRITES_DST, "dst", buffers[1], values["dstoff"], values["cnt"], sizes, note)
    wanted = None if values["depid"] == values["deps"] == -1 else (values["depid"], values["deps"])
    row = [int(kind), buffers[0], values["srcoff"], buffers[1], values["dstoff"], values["cnt"], -1, has_dep]
    return row, wanted


def _check_numbers(named: int, number: int, has_dep: int, note: Note) -> None:
    if named != number:
        note("limits", f"step {named} stands at place {number}", -1)
    if has_dep not in (0, 1):
        note("attribute", f"hasdep is {has_dep}, not 0 or 1", -1)


def _buffer(step: Element, key: str, note: Note) -> int:
    letter = step.attributes.get(key, "")
    if len(letter) != 1 or letter not in LETTERS:
        note("attribute", f"{key} is '{letter[:40]}', not i, o or s", -1)
        return 0
    return LETTERS.index(letter)


def _check_range(used: bool, end: str, buffer: int, offset: int, count: int, sizes: list[int], note: Note) -> None:
    if used and not 0 <= offset <= sizes[buffer] - max(count, 0):
        letter = LETTERS[buffer]
        note("index", f"{end} {letter}[{offset}..{offset + count - 1}] of {sizes[buffer]} chunks", offset)


class StepDependencies:
    """Which step of a rank waits for which (V9), resolved when all its thread blocks are read."""

    def __init__(self, rank: int, findings: FileFindings) -> None:
        self.rank, self.findings = rank, findings
        self.lengths: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.wanted: list[tuple[int, int, int, int, int, int]] = []  # row, thread block, step, wanted both, line

    def resolve(self, rows: list[list[int]]) -> None:
        """Put the row of each dependency into the rows (their ninth column from the thread block on is ``dep``)."""
        waiting = {(threadblock, number) for _, threadblock, number, _, _, _ in self.wanted}
        for row, threadblock, number, depid, deps, line in self.wanted:
            problem = self._problem(threadblock, depid, deps, rows)
            if not problem and rows[row][2] == Opcode.NOP and (threadblock, number + 1) not in waiting:
                problem = "a nop only counts where the step behind it waits for something too"
            if problem:
                text = f"thread block {threadblock}: waits for thread block {depid}, step {deps}: {problem}"
                self.findings.add("dependency", text, line, rank=self.rank, step=number)
            else:
                rows[row][8] = self.first[depid] + deps

    def _problem(self, threadblock: int, depid: int, deps: int, rows: list[list[int]]) -> str:
        if depid not in self.lengths:
            return "there is none"
        if depid == threadblock:
            return "it is the same thread block"
        if not 0 <= deps < self.lengths[depid]:
            return f"it has {self.lengths[depid]} steps"
        if depid >= MOST_AWAITED:
            return f"only the first {MOST_AWAITED} can be waited for"
        if not rows[self.first[depid] + deps][9]:
            return "that step has hasdep 0 and never says that it is done"
        return ""
