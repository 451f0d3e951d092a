"""Random programs on random fabrics with random faults, by packets: cases for the twins, and for laws."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from ringwright.costs.protocols import PROTOCOLS
from ringwright.engines.flat import flatten
from ringwright.engines.machine import machine
from ringwright.engines.packets.carriage import spoken, wire_rates, without_losses
from ringwright.engines.packets.layout import lay_out
from ringwright.engines.packets.network import PacketNetwork
from ringwright.engines.packets.options import PacketOptions
from ringwright.fabrics import fabric, faults
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.topology import Fault, Topology

OPERATIONS = (
    ("all-reduce", "ring"),
    ("all-reduce", "halving-doubling"),
    ("all-to-all", "direct"),
    ("all-gather", "bruck"),
    ("gather", "linear"),
)
SIZES = (1_000, 30_000, 300_000, 1_000_000)


@dataclass(frozen=True)
class PacketCase:
    """A program on a fabric with faults; ``alpha``: the latency model; the rest as in ``PacketOptions``."""

    program: Program
    topology: Topology
    alpha: str
    seed: int
    acknowledged: bool
    duplex: bool = False
    burst_bytes: int = 0

    def network(self) -> PacketNetwork:
        """Return what the packet loop reads."""
        top = wire_rates(self.topology)
        made = machine(without_losses(top), self.alpha)
        flat = flatten(self.program, made)
        options = PacketOptions(seed=self.seed, duplex=self.duplex, burst_bytes=self.burst_bytes)
        return lay_out(flat, made.carrying(self.program), spoken(top), top, options)


def case(seed: int) -> PacketCase:
    """Return the case of a seed."""
    draw = random.Random(seed)
    top = _fabric(draw)
    op, slug = draw.choice(OPERATIONS)
    _, build, knobs = algorithm(slug)
    program = build(Collective(op, range(top.n_ranks), draw.choice(SIZES)), top, **knobs)
    alpha = draw.choice(("pipelined", "busy"))
    faulty, number, acknowledged = _faulty(top, draw), draw.randint(0, 9), draw.random() < 0.3
    duplex, burst = draw.random() < 0.4, draw.choice((0, 0, 3_000, 16_384))
    return PacketCase(program, faulty, alpha, number, acknowledged, duplex, burst)


def healthy(seed: int) -> tuple[Program, Topology]:
    """Return the program and the fabric of a seed, without faults."""
    draw = random.Random(seed)
    top = _fabric(draw)
    op, slug = draw.choice(OPERATIONS)
    _, build, knobs = algorithm(slug)
    return build(Collective(op, range(top.n_ranks), draw.choice(SIZES)), top, **knobs), top


def _fabric(draw: random.Random) -> Topology:
    rate = draw.choice(("20Mb/s", "1Gb/s", "100Gb/s", "400Gb/s"))
    spoken_by = draw.choice(tuple(PROTOCOLS))
    chosen = draw.choice(
        (
            f"switch:{draw.randint(2, 6)},rate={rate}",
            f"leaf-spine:8,per_leaf=4,oversubscription={draw.choice((1, 2, 4))},rate={rate}",
            "torus:3x3",
            "dgx-h100:2",
            "ring:5",
            "fat-tree:16",
            "ndv2:2",
        )
    )
    return fabric(f"{chosen},transport={spoken_by}")


def _faulty(top: Topology, draw: random.Random) -> Topology:
    lines = [f"link * loss {draw.choice((0.1, 1, 5))}%"] if draw.random() < 0.5 else []
    for chance, line in (
        (0.2, "link random:2 rate 20% from 10us to 1ms"),
        (0.2, "link random:1 dead from 5us to 50us"),
        (0.2, "link * latency +1us"),
        (0.1, "link random:2 ber 1e-3 from 2us"),
    ):
        lines += [line] if draw.random() < chance else []
    top = faults.apply(top, lines, seed=draw.randint(0, 99))
    if draw.random() < 0.5:
        size = float(draw.choice((8_000, 32_000, 128_000)))
        rows = [Fault(0.0, "link", link, "buffer_bytes", size) for link in range(top.n_links)]
        ordered = sorted((*top.faults, *rows), key=lambda each: (each.time_s, each.kind, each.target, each.field))
        top = dataclasses.replace(top, faults=tuple(ordered))
    return top
