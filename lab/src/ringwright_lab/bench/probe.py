"""A probe of message costs: a few plain exchanges in the same run, from which the simulator's machine is fitted.

All ranks send to the next one (``shift``), or add what comes (``adds``); one rank sends alone (``pair``); each sends to all
(``fan``). From these: a latency, what a message occupies its sender for, the rate of one pair, what all pairs share, and how
fast a rank adds. Nothing of the collectives that are to be predicted goes into it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Op, Program, Step, constant, cut, explicit, turn

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

KINDS = ("shift", "adds", "pair", "fan")
SMALL_BYTES = 64
STEPS = 4
LEAST_SHARE = 0.1
GOODPUT = 1448 / 1514  # bytes of data in a full Ethernet frame with TCP's timestamps, as the shaper counts frames


def programs(p: int, sizes: Sequence[int]) -> list[tuple[str, int, Program]]:
    """Return (kind, message bytes, program) of all that is measured."""
    probes = [("fan", SMALL_BYTES, _program(p, SMALL_BYTES, "fan"))] if p > 2 else []
    for size in dict.fromkeys((SMALL_BYTES, *sizes)):
        probes += [(kind, size, _program(p, size, kind)) for kind in ("shift", "adds", "pair")]
    return probes


def _program(p: int, size: int, kind: str) -> Program:
    """Return STEPS exchanges, each of which sends on what the one before brought: so a step is one way, not there and back."""
    collective = Collective("all-reduce", range(p), size * (STEPS + 1))
    steps = tuple(Step(_blocks(p, kind, step)) for step in range(STEPS))
    return Program(
        f"probe-{kind}", collective, cut(collective, STEPS + 1), lambda: steps, STEPS, Cost((), float(STEPS * size))
    )


def _blocks(p: int, kind: str, step: int) -> tuple[Block, ...]:
    here, there = constant(step), constant(step + 1)
    if kind == "pair":
        return (explicit(Op.SEND, [step % 2], [1 - step % 2], [step], [step + 1]),)
    if kind == "fan":
        return tuple(Block(Op.SEND, (p,), turn(p), turn(p, by), here, there, channel=by) for by in range(1, p))
    return (Block(Op.REDUCE if kind == "adds" else Op.SEND, (p,), turn(p), turn(p, 1), here, there),)


@dataclass(frozen=True)
class ProbedMachine:
    """What was fitted. ``shared_rate``: bytes/s that all ranks have together."""

    latency_s: float
    message_s: float
    rate: float
    shared_rate: float
    reduce_rate: float

    def topology(self, p: int) -> Topology:
        """Return one switch with these numbers."""
        from ringwright.fabrics import fabric
        from ringwright.model.wiring import shared

        switched = fabric(f"switch:{p}")
        links = np.flatnonzero(switched.src < p)  # those that leave a rank
        groups = (dataclasses.replace(shared("this machine", self.shared_rate, range(0)), links=links),)
        name = switched.classes[0]
        return dataclasses.replace(
            switched,
            rate=np.full(switched.n_links, self.rate),
            latency_s=np.full(switched.n_links, self.latency_s / 2),
            groups=groups,
            message_s={name: self.message_s},
            occupying=(name,),
            reduce_rate=self.reduce_rate,
            provenance="a probe of this machine in the same run",
        )

    def on(self, topology: Topology) -> Topology:
        """Return a lab's fabric with this software cost; its rates are those of the lab, less the headers of frames."""
        hops = max(1, _hops(topology))
        return dataclasses.replace(
            topology,
            rate=topology.rate * GOODPUT,
            latency_s=topology.latency_s + self.latency_s / hops,
            message_s=dict.fromkeys(topology.classes, self.message_s),
            occupying=topology.classes,
            provenance=f"rates of the lab times {GOODPUT:.3f} (frame headers), latency from a probe in the same run",
        )


def _hops(topology: Topology) -> int:
    starts, _ = topology.routes(np.array([0]), np.array([topology.n_ranks - 1]))
    return int(starts[1] - starts[0])


def fit(p: int, times_s: Mapping[tuple[str, int], float], around_bytes: float) -> ProbedMachine:
    """Return the machine on which messages of about ``around_bytes`` take as long as in the probe (interpolated by size)."""
    small = max(times_s["shift", SMALL_BYTES], 1e-9)
    fan = times_s.get(("fan", SMALL_BYTES))
    message_s = min(max((fan - small) / (p - 2), 0.0), small) if fan else 0.0
    sizes = sorted({size for _, size in times_s if size > SMALL_BYTES})
    if not sizes:
        return ProbedMachine(small - message_s, message_s, 1e12, 1e12, float("inf"))
    size = min(max(around_bytes, sizes[0]), sizes[-1])

    def beyond(kind: str) -> float:
        """Seconds that a message of this size takes beyond a small one; some share of it, whatever the noise."""
        logs = np.log([times_s[kind, each] for each in sizes])
        whole = float(np.exp(np.interp(np.log(size), np.log(sizes), logs)))
        return max(whole - small, LEAST_SHARE * whole)

    shift, adds, pair = (beyond(kind) for kind in ("shift", "adds", "pair"))
    reduce_rate = size / (adds - shift) if adds > shift * (1 + LEAST_SHARE) else float("inf")
    return ProbedMachine(small - message_s, message_s, size / min(pair, shift), p * size / shift, reduce_rate)
