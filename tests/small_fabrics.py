"""Small machines for tests of algorithms, and what is measured on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ringwright.engines import events, flat
from ringwright.engines.flat import flatten
from ringwright.engines.machine import machine
from ringwright.model import interpreter, validity
from ringwright.model.program import Program
from ringwright.model.topology import NIC, RANK, SWITCH, Topology

GBIT = 1e9 / 8
Link = tuple[int, int, float, float]  # both ways: node, node, bytes/s, s


def build(
    name: str, ranks: int, switches: int, links: Sequence[Link], *, hosts: Sequence[int] | None = None, nics: int = 0
) -> Topology:
    """Ranks, then NICs, then switches; every link goes both ways."""
    one, two, rate, latency = (np.array(column) for column in zip(*links, strict=True))
    kinds = np.repeat(np.array([RANK, NIC, SWITCH], np.uint8), [ranks, nics, switches])
    return Topology(
        name,
        ranks,
        kinds,
        np.concatenate((one, two)),
        np.concatenate((two, one)),
        np.tile(rate, 2),
        np.tile(latency, 2),
        np.zeros(2 * len(one), np.int64),
        ("link",),
        hosts=None if hosts is None else np.array(hosts),
    )


def full(p: int, rate: float = 1e10, latency_s: float = 1e-6) -> Topology:
    pairs = [(a, b, rate, latency_s) for a in range(p) for b in range(a)] or [(0, 1, rate, latency_s)]
    return build(f"full:{p}", p, 1 if p == 1 else 0, pairs)


def star(p: int, rate: float = 1e10, latency_s: float = 1e-6) -> Topology:
    return build(f"star:{p}", p, 1, [(rank, p, rate, latency_s) for rank in range(p)])


def tree(ranks: int, parents: Sequence[int], attached: Sequence[int], latency_s: float = 1e-6) -> Topology:
    """Switches in a tree by ``parents`` (the first is the root), rank r below switch ``attached[r]``."""
    links = [(ranks + child, ranks + parent, 1e10, latency_s) for child, parent in enumerate(parents) if parent >= 0]
    links += [(rank, ranks + switch, 1e10, latency_s) for rank, switch in enumerate(attached)]
    return build("tree", ranks, len(parents), links)


def racks(
    n: int,
    each: int,
    *,
    rate: float = 10 * GBIT,
    oversubscription: float = 4.0,
    order: Sequence[int] | None = None,
    latency_s: float = 5e-6,
) -> Topology:
    """``n`` racks of ``each`` hosts below one spine; ``order[rank]`` is the slot that a rank has."""
    p = n * each
    slot = np.arange(p) if order is None else np.asarray(order)
    links = [(rank, p + int(slot[rank]) // each, rate, latency_s) for rank in range(p)]
    links += [(p + rack, p + n, rate * each / oversubscription, latency_s) for rack in range(n)]
    return build(f"racks:{n}x{each}", p, n + 1, links, hosts=range(p))


def boxes(
    n: int, g: int, *, nvlink: float, nic: float, nics: int | None = None, alpha: float = 1e-6, network: float = 2e-6
) -> Topology:
    """``n`` boxes of ``g`` GPUs on an inner switch, with ``nics`` NICs each (g), close to as many GPUs, on one wide switch."""
    p, nics = n * g, g if nics is None else nics
    first_nic, inner = p, p + n * nics
    links = [(rank, inner + rank // g, nvlink, alpha) for rank in range(p)]
    for box in range(n):
        ports = [first_nic + box * nics + port for port in range(nics)]
        if nics > 1:
            links += [(box * g + gpu, ports[gpu * nics // g], nic * 4, alpha / 2) for gpu in range(g)]
        else:
            links += [(inner + box, port, nic * 4, alpha / 2) for port in ports]
        links += [(port, inner + n, nic, network / 2) for port in ports]
    return build(f"boxes:{n}x{g}", p, n + 1, links, hosts=[rank // g for rank in range(p)], nics=n * nics)


def bigraph(side: int, ports: int, rate: float = 12.5e9, latency_s: float = 1e-6) -> Topology:
    """``side`` upper and ``side`` lower switches, every upper linked to every lower, ``ports`` hosts below each."""
    p = 2 * side * ports
    links = [(rank, p + rank // ports, rate, latency_s) for rank in range(p)]
    links += [(p + up, p + side + low, rate, latency_s) for up in range(side) for low in range(side)]
    return build(f"bigraph:{side}x{ports}", p, 2 * side, links, hosts=range(p))


# -------------------------------------------------------------------------------------------------------- measurements
def time_s(program: Program, topology: Topology, alpha: str = "pipelined") -> float:
    target = machine(topology, alpha)
    return events.run(flatten(program, target), target).time_ps * 1e-12


def declared_s(program: Program, latency_s: float = 1e-6, rate: float = 1e10) -> float:
    return program.cost.messages * latency_s + program.cost.path_bytes / rate


def busiest_link(program: Program, topology: Topology) -> int:
    """Return the most messages of one step on one directed link."""
    target, most = machine(topology), 0
    for step in program.steps():
        pairs = np.unique(np.concatenate([np.stack(block.arrays()[:2], 1) for block in step.blocks]), axis=0)
        _, hops = flat.routes(target, pairs[:, 0], pairs[:, 1], np.zeros(len(pairs), bool))
        most = max(most, int(np.bincount(hops).max(initial=0)))
    return most


def wrong(program: Program) -> str:
    """Return what is broken in a program, or nothing."""
    found = validity.check(program)
    if found:
        return str(found[0])
    given = interpreter.inputs(program.collective, seed=program.p)
    wanted = interpreter.expected(program.collective, given)
    for rank, (have, want) in enumerate(zip(interpreter.run(program, given), wanted, strict=True)):
        if have.keys() != want.keys() or any(not np.array_equal(have[block], want[block]) for block in want):
            return f"rank {rank} has the wrong data"
    return ""


def one_port(program: Program) -> bool:
    for step in program.steps():
        pairs = {(int(s), int(d)) for block in step.blocks for s, d in zip(*block.arrays()[:2], strict=True) if s != d}
        if len({s for s, _ in pairs}) < len(pairs) or len({d for _, d in pairs}) < len(pairs):
            return False
    return True


def closed_form_error(program: Program) -> float | None:
    """Return how far the declared cost is from the time on ideal links, where it should be that.

    A port is busy for alpha + bytes, so that a rank sends one message after the other.
    """
    if not program.cost.is_even or program.p < 2 or not one_port(program):
        return None
    plain = star(program.p)
    topology = dataclasses.replace(plain, latency_s=np.where(plain.src < program.p, 1e-6, 0.0))
    return abs(time_s(program, topology, alpha="busy") / declared_s(program) - 1)
