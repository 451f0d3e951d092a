"""The declared cost of a program against its time on ideal links.

On those a rank sends one message after the other, each for alpha and its bytes. Channels work side by side: each has its
part of the link that it shares with others, so the declared time is that of the channel that takes the longest, alone with its
part. A program may count on one link per rank, which all its channels share, or on one per pair of ranks (two-way rings), or on
channels that take turns, each message a start-up of its own (chains whose channels follow one another).

A formula counts step by step, while a rank that is ahead need not wait for the others: the declared time lies between the time
without and the time with a barrier after every step. Mostly the two are the same.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.program import Block, Step
from ringwright.model.software import NO_SOFTWARE
from ringwright_lab.contracts.outcome import DECLINED

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

ALPHA_S, RATE = 1e-6, 1e10


def closed_form(program: Program, topology: Topology) -> str | None:
    """Where no channel of a rank ever sends or receives two messages at once, the declared cost is the time on ideal links."""
    del topology
    if not program.cost.is_even or program.p < 2 or program.aggregators:
        return f"{DECLINED}an uneven cut, a group of one, or an aggregating switch"
    if program.cost.hides:
        return f"{DECLINED}levels that overlap on networks of their own"
    channels = sorted({block.channel for step in program.steps() for block in step.blocks}) or [0]
    if not all(_one_port(program, channel) for channel in channels):
        return f"{DECLINED}several messages at once"
    if len(channels) > 1 and _is_shared(program):
        return f"{DECLINED}channels that wait for each other"
    want = program.cost.messages * ALPHA_S + program.cost.path_bytes / RATE
    slack = 1e-6 * want + 1e-11 * program.n_steps
    told = []
    for parts in _sharing(program, channels):
        least = max(_alone_s(program, channel, RATE * part) for channel, part in parts.items())
        most = max(_in_step_s(program, channel, RATE * part) for channel, part in parts.items())
        if least - slack <= want <= most + slack:
            return None
        told.append(f"{least * 1e6:.6f}" if most <= least + slack else f"{least * 1e6:.6f} to {most * 1e6:.6f}")
    if len(channels) > 1:
        in_turn = _alone_s(program, None, RATE)
        if abs(want - in_turn) <= slack:
            return None
        told.append(f"{in_turn * 1e6:.6f}")
    beside = f" with {len(channels)} channels" if len(channels) > 1 else ""
    return f"declared {want * 1e6:.6f} us, measured {' or '.join(dict.fromkeys(told))} us{beside}"


def _alone_s(program: Program, channel: int | None, rate: float) -> float:
    """Return how long the moves of one channel (None: all) take by themselves on ideal links, without what a library adds."""
    from ringwright.engines.choose import simulate

    def steps() -> list[Step]:
        kept = (dataclasses.replace(step, blocks=_of(step, channel)) for step in program.steps())
        return [step for step in kept if step.blocks]

    bare = dataclasses.replace(program, software=NO_SOFTWARE, make_steps=steps, n_steps=len(steps()), schedule=None)
    return simulate(bare, _machine(program.p, rate), engine="events", alpha="busy").time_s


def _in_step_s(program: Program, channel: int, rate: float) -> float:
    """Return how long the moves of one channel take with a barrier after every step: in each, the largest message."""
    total_s = 0.0
    for step in program.steps():
        size: dict[tuple[int, int], int] = {}
        for block in _of(step, channel):
            src, dst, slots, _ = block.arrays()
            sizes = program.layout.message_bytes(slots, block.span).tolist()
            for s, d, each in zip(src.tolist(), dst.tolist(), sizes, strict=True):
                if s != d:
                    size[s, d] = size.get((s, d), 0) + each
        total_s += ALPHA_S + max(size.values()) / rate if size else 0.0
    return total_s


def _of(step: Step, channel: int | None) -> tuple:  # type: ignore[type-arg]
    return tuple(block for block in step.blocks if channel in (None, block.channel))


def _machine(p: int, rate: float) -> Topology:
    """Return a switch whose uplinks are busy for alpha + bytes, so that a rank sends one message after the other."""
    from ringwright.fabrics import fabric

    machine = fabric(f"switch:{p}", rate=rate)
    up = machine.src < p
    return dataclasses.replace(machine, latency_s=np.where(up, ALPHA_S, 0.0))


def _one_port(program: Program, channel: int) -> bool:
    """Whether no rank sends or receives more than one message of the channel in any step."""
    for step in program.steps():
        pairs = _pairs(step, channel)
        if len({s for s, _ in pairs}) < len(pairs) or len({d for _, d in pairs}) < len(pairs):
            return False
    return True


def _pairs(step: Step, channel: int) -> set[tuple[int, int]]:
    """Return who sends to whom on a channel: all moves between two ranks are one message."""
    return {
        (int(s), int(d)) for block in _of(step, channel) for s, d in zip(*block.arrays()[:2], strict=True) if s != d
    }


def _sharing(program: Program, channels: list[int]) -> list[dict[int, float]]:
    """Return each channel's part of its link: that of a rank goes by bytes, that between two ranks in equal parts."""
    of_two, size = 1, dict.fromkeys(channels, 0)
    for step in program.steps():
        pairs = [pair for channel in {block.channel for block in step.blocks} for pair in _pairs(step, channel)]
        of_two = max(of_two, *Counter(pairs).values(), 1)
        for block in step.blocks:
            size[block.channel] += int(program.layout.message_bytes(block.arrays()[2], block.span).sum())
    total = sum(size.values())
    by_bytes = {channel: max(size[channel] / total, 1e-12) if total else 1.0 for channel in channels}
    return [by_bytes, dict.fromkeys(channels, 1 / of_two)]


def _is_shared(program: Program) -> bool:
    """Whether two channels ever touch the same slot of a node, so that one may wait for the other."""
    owner: dict[tuple[int, int], int] = {}
    return any(
        owner.setdefault((at, each), block.channel) != block.channel
        for step in program.steps()
        for block in step.blocks
        for at, first in _touched(block)
        for each in range(first, first + block.span)
    )


def _touched(block: Block) -> Iterator[tuple[int, int]]:
    """Yield the node and the first slot of each end of a block's messages."""
    src, dst, chunk, to = block.arrays()
    for node, slot in ((src, chunk), (dst, to)):
        yield from set(zip(node.tolist(), slot.tolist(), strict=True))
