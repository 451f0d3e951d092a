"""What a certificate proves, worked out by hand: losses, capacities that links share, roots, prefixes and parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ringwright.bounds.certificates import proved_s
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.topology import SharedCapacity, Topology

SIZE = 4000


def line() -> Topology:
    """Four ranks in a ring, every link of 10 bytes/s and 1 s."""
    ring = fabric("ring:4")
    return replace(ring, rate=np.full(ring.n_links, 10.0), latency_s=np.ones(ring.n_links))


def proved(op: str, nodes: list[int], crossing: str, topology: Topology, root: int = 0) -> float | None:
    proof = {"kind": "set", "nodes": [nodes], "crossing": crossing}
    return proved_s(proof, Collective(op, range(4), SIZE, "int8", root=root), topology)


@pytest.mark.parametrize(
    ("op", "nodes", "crossing", "wanted"),
    [
        ("all-gather", [0], "into", 3 * SIZE / 4),
        ("all-gather", [0, 1, 2], "into", SIZE / 4),
        ("reduce-scatter", [0], "out of", 3 * SIZE / 4),
        ("all-to-all", [0, 1], "out of", SIZE),
        ("all-reduce", [2], "into", SIZE),
        ("broadcast", [0], "out of", SIZE),
        ("broadcast", [1], "out of", 0),
        ("reduce", [0], "into", SIZE),
        ("reduce", [1], "into", 0),
        ("gather", [0], "into", 3 * SIZE / 4),
        ("gather", [1], "into", 0),
        ("scatter", [0], "out of", 3 * SIZE / 4),
        ("scatter", [1], "out of", 0),
        ("scan", [3], "into", SIZE),
        ("scan", [3], "out of", 0),
        ("send-recv", [0, 1], "out of", SIZE),
        ("send-recv", [0, 2], "out of", 2 * SIZE),
    ],
)
def test_what_must_cross_a_set_over_what_can(op: str, nodes: list[int], crossing: str, wanted: float) -> None:
    ends = 4 if nodes == [0, 2] else 2  # links that cross
    assert proved(op, nodes, crossing, line()) == pytest.approx(wanted / (10.0 * ends))


def test_the_root_may_be_any_place() -> None:
    assert proved("broadcast", [1], "out of", line(), root=1) == pytest.approx(SIZE / 20)
    assert proved("reduce", [1], "into", line(), root=1) == pytest.approx(SIZE / 20)


def test_links_carry_what_is_not_lost_and_no_more_than_they_share() -> None:
    whole = line()
    lossy = replace(whole, loss=np.full(whole.n_links, 0.5))
    into = np.flatnonzero(whole.dst == 0)
    for topology, shared, rate in ((whole, 15.0, 15.0), (whole, 30.0, 20.0), (lossy, 15.0, 10.0), (lossy, 4.0, 4.0)):
        bundle = replace(topology, groups=(SharedCapacity("bus", shared, into),))
        assert proved("all-reduce", [0], "into", bundle) == pytest.approx(SIZE / rate)
    assert proved("all-reduce", [0], "into", lossy) == pytest.approx(SIZE / 10)


def test_parts_prove_only_together() -> None:
    collective = Collective("all-reduce", range(4), SIZE)
    for parts, wanted in (
        ([[0], [1], [2], [3]], 2 * 3 * SIZE / 80),
        ([[0, 1], [2, 3]], 2 * SIZE / 40),
        ([[0], [1], [2]], 0.0),
        ([[0, 1], [1, 2], [3]], 0.0),
    ):
        assert proved_s({"kind": "parts", "nodes": parts}, collective, line()) == pytest.approx(wanted)


def test_a_distance_goes_round_what_is_dead() -> None:
    whole = line()
    between = (whole.src == 0) & (whole.dst == 1)
    dead = replace(whole, rate=np.where(between, 0.0, whole.rate))
    proof = {"kind": "distance", "nodes": [[0], [1]]}
    collective = Collective("all-gather", range(4), SIZE)
    assert [proved_s(proof, collective, each) for each in (whole, dead)] == [1.0, 3.0]
