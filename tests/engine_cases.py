"""Small fabrics and random programs for the tests of the engines."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Layout, Op, Program, Step, constant, explicit, turn
from ringwright.model.topology import RANK, SWITCH, Fault, SharedCapacity, Topology

NS = 1e-9


def _fabric(name: str, p: int, links: list[tuple[int, int, float, float]], nodes: int, **more: Any) -> Topology:
    src, dst, rate, latency = (np.array(column) for column in zip(*links, strict=True))
    kinds = np.array([RANK] * p + [SWITCH] * (nodes - p), np.uint8)
    zeros = np.zeros(len(src), np.int16)
    return Topology(name, p, kinds, src, dst, rate.astype(float), latency.astype(float), zeros, ("link",), **more)


def switch(p: int, rate: float = 50e9, latency_s: float = 250 * NS, **more: Any) -> Topology:
    """All ranks on one switch; link i goes up, link p + i down."""
    up = [(i, p, rate, latency_s) for i in range(p)]
    down = [(p, i, rate, latency_s) for i in range(p)]

    def paths(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        return np.stack((src, np.where(src == dst, -1, p), np.where(src == dst, -1, dst)), axis=1)

    return _fabric(f"switch:{p}", p, up + down, p + 1, paths=paths, **more)


def circle(p: int, rate: float = 50e9, latency_s: float = 500 * NS, **more: Any) -> Topology:
    """A ring of links in both directions, ranks forward."""
    links = [(i, (i + by) % p, rate, latency_s) for by in (1, -1) for i in range(p)]
    return _fabric(f"ring:{p}", p, links, p, **more)


def torus(a: int, b: int, rate: float = 50e9, latency_s: float = 500 * NS, **more: Any) -> Topology:
    """A torus of a x b ranks, the first axis fastest; dimension-ordered routes by shortest path search."""
    p = a * b
    links = []
    for rank in range(p):
        x, y = rank % a, rank // a
        near = {((x + 1) % a, y), ((x - 1) % a, y), (x, (y + 1) % b), (x, (y - 1) % b)} - {(x, y)}
        links += [(rank, there + a * up, rate, latency_s) for there, up in sorted(near)]

    def walk(here: np.ndarray, there: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        ahead = (there - here) % size
        return np.where(ahead <= size // 2, 1, -1), np.minimum(ahead, size - ahead)

    def paths(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        way, far = walk(src % a, dst % a, a)
        up, high = walk(src // a, dst // a, b)
        rows = [src]
        rows += [
            np.where(step <= far, (src % a + way * step) % a + a * (src // a), -1) for step in range(1, a // 2 + 1)
        ]
        rows += [
            np.where(step <= high, dst % a + a * ((src // a + up * step) % b), -1) for step in range(1, b // 2 + 1)
        ]
        nodes = np.stack(rows, axis=1)
        order = np.argsort(nodes < 0, axis=1, kind="stable")  # gaps go behind the target
        return np.take_along_axis(nodes, order, axis=1)

    return _fabric(f"torus:{a}x{b}", p, links, p, paths=paths, axes=(("x", a), ("y", b)), **more)


def nodes_of(gpus: int, nodes: int, fast: float = 400e9, slow: float = 50e9, *, plane: bool = False) -> Topology:
    """Nodes of ``gpus`` on an NVSwitch each, one NIC link per rank to its rail; a rail switch joins the nodes.

    With ``plane`` an NVSwitch also has a capacity of its own, half of what its ranks could send.
    """
    p = gpus * nodes
    rank = np.arange(p)
    inner, rail = p + rank // gpus, p + nodes + rank % gpus
    ends = [(rank, inner), (inner, rank), (rank, rail), (rail, rank)]
    src, dst = (np.concatenate(column) for column in zip(*ends, strict=True))
    rate = np.repeat([fast, fast, slow, slow], p)
    latency = np.repeat([100 * NS, 100 * NS, 900 * NS, 900 * NS], p)
    kinds = np.array([RANK] * p + [SWITCH] * (nodes + gpus), np.uint8)
    groups = [
        SharedCapacity(f"node{n}", fast * gpus / 2, np.arange(n * gpus, (n + 1) * gpus))
        for n in range(nodes if plane else 0)
    ]

    def paths(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        same = here // gpus == there // gpus
        first = np.where(same, p + here // gpus, p + nodes + here % gpus)
        turned = np.where(same | (here % gpus == there % gpus), -1, there // gpus * gpus + here % gpus)
        inside = np.where(turned < 0, -1, p + there // gpus)
        nodes_ = np.stack((here, first, turned, inside, np.full_like(here, -1), there), axis=1)
        nodes_[here == there, 1:] = -1
        order = np.argsort(nodes_ < 0, axis=1, kind="stable")
        return np.take_along_axis(nodes_, order, axis=1)

    return Topology(
        f"nodes:{gpus}x{nodes}",
        p,
        kinds,
        src,
        dst,
        rate,
        latency,
        np.repeat([0, 0, 1, 1], p).astype(np.int16),
        ("nvlink", "nic"),
        tuple(groups),
        (("gpu", gpus), ("node", nodes)),
        paths=paths,
    )


def leaf_spine(per_leaf: int, leaves: int, spines: int, rate: float = 50e9, latency_s: float = 500 * NS) -> Topology:
    """Ranks on leaves, leaves on spines, one link each; the spine of a pair follows from its target."""
    p = per_leaf * leaves
    rank, leaf = np.arange(p), p + np.arange(p) // per_leaf
    lower, upper = (np.repeat(np.arange(leaves), spines) + p, np.tile(np.arange(spines), leaves) + p + leaves)
    ends = [(rank, leaf), (leaf, rank), (lower, upper), (upper, lower)]
    src, dst = (np.concatenate(column) for column in zip(*ends, strict=True))
    n = len(src)

    def paths(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        same = here // per_leaf == there // per_leaf
        spine = np.where(same, -1, p + leaves + there % spines)
        far = np.where(same, -1, p + there // per_leaf)
        nodes = np.stack((here, p + here // per_leaf, spine, far, there), axis=1)
        nodes[here == there, 1:] = -1
        order = np.argsort(nodes < 0, axis=1, kind="stable")
        return np.take_along_axis(nodes, order, axis=1)

    kinds = np.array([RANK] * p + [SWITCH] * (leaves + spines), np.uint8)
    return Topology(
        f"leaf-spine:{p}",
        p,
        kinds,
        src,
        dst,
        np.full(n, rate),
        np.full(n, latency_s),
        np.repeat([0, 1], [2 * p, n - 2 * p]).astype(np.int16),
        ("leaf", "spine"),
        paths=paths,
        axes=(("port", per_leaf), ("leaf", leaves)),
    )


def random_fabric(rng: np.random.Generator, p: int) -> Topology:
    """A connected fabric of uneven links, perhaps with shared capacities, slow adders, software, loss and faults."""
    switches = int(rng.integers(1, 4))
    links = []
    for rank in range(p):
        at = p + int(rng.integers(switches))
        links += [(rank, at), (at, rank)]
    links += [(p + i, p + j) for i in range(switches) for j in range(switches) if i != j]
    links += [(int(a), int(b)) for a, b in rng.integers(p, size=(2, 2)) if a != b]
    n = len(links)
    src, dst = np.array(links).T
    kinds = np.array([RANK] * p + [SWITCH] * switches, np.uint8)
    rate, latency = rng.choice([1e9, 3e9, 7e9], n), rng.choice([0, 1e-7, 3e-7], n)
    classes = (rng.random(n) < 0.3).astype(np.int16)
    groups = tuple(
        SharedCapacity(f"shared{i}", float(rng.choice([1e9, 5e9])), rng.choice(n, 3, replace=False))
        for i in range(int(rng.integers(3)))
    )
    faults = tuple(_random_fault(rng, n, p) for _ in range(int(rng.integers(5))))
    return Topology(
        "random",
        p,
        kinds,
        src,
        dst,
        rate,
        latency,
        classes,
        ("link", "wire"),
        groups,
        faults=faults,
        reduce_rate=float(rng.choice([np.inf, 2e9])),
        message_s={"link": 2e-7, "wire": 5e-7} if rng.random() < 0.5 else {},
        occupying=(("link",), ("wire",), ("link", "wire"), ())[int(rng.integers(4))],
        loss=rng.choice([0.0, 0.01], n) if rng.random() < 0.3 else None,
    )


def _random_fault(rng: np.random.Generator, links: int, p: int) -> Fault:
    what = str(rng.choice(["rate_factor", "latency_s", "loss", "compute_factor"]))
    value = rng.choice({"latency_s": [0, 2e-6], "loss": [0.0, 0.5]}.get(what, [0, 0.3, 1, 2]))
    on_rank = what == "compute_factor"
    target = int(rng.integers(p if on_rank else links))
    return Fault(float(rng.integers(20)) * 1e-6, "rank" if on_rank else "link", target, what, float(value))


def random_program(rng: np.random.Generator, p: int, *, multicast: bool = True) -> Program:
    """Steps of random moves: legal in form, though they need not add up to a collective."""
    slots = int(rng.integers(1, 9))
    sizes = rng.integers(0, 20_000, slots)
    steps = []
    for _ in range(int(rng.integers(1, 12))):
        blocks = []
        for _ in range(int(rng.integers(1, 4))):
            n = int(rng.integers(1, 2 * p))
            src = rng.integers(p, size=n)
            dst = (src + rng.integers(1, p, size=n)) % p
            op = Op(int(rng.integers(3)))
            span = int(rng.integers(1, slots + 1))
            chunk, to = rng.integers(slots - span + 1, size=(2, n))
            blocks.append(
                explicit(op, src, src if op is Op.COPY else dst, chunk, to, span=span, channel=int(rng.integers(2)))
            )
        if multicast and rng.random() < 0.3:
            blocks = [_random_multicast(rng, p, slots)]
        steps.append(Step(tuple(blocks)))
    collective = Collective("all-reduce", range(p), int(sizes.sum()))
    layout = Layout(slots, sizes, slots, slots)
    return Program("random", collective, layout, lambda: steps, len(steps), Cost((), 0.0))


def _random_multicast(rng: np.random.Generator, p: int, slots: int) -> Block:
    sources = rng.choice(p, int(rng.integers(1, min(p, 3) + 1)), replace=False)
    moves = [(src, dst) for src in sources for dst in range(p) if src != dst and rng.random() < 0.7]
    src, dst = np.array(moves or [(0, 1)]).T
    block = explicit(Op.SEND, src, dst, int(rng.integers(slots)), channel=int(rng.integers(2)))
    return dataclasses.replace(block, multicast=True)


def direct_all_to_all(p: int, size_bytes: int) -> Program:
    """Every pair at once, in one step."""
    collective = Collective("all-to-all", range(p), size_bytes)
    each = collective.block_bytes[:1]
    # Rank r finds what it sends to its d-th successor in slot d, and puts what it gets in slot p + d.
    blocks = tuple(Block(Op.SEND, (p,), turn(p), turn(p, by), constant(by), constant(p + by)) for by in range(1, p))
    sent = float(each[0]) * p * (p - 1)
    return Program("direct", collective, Layout(2 * p, each, 1, 2 * p), lambda: [Step(blocks)], 1, Cost((), sent))
