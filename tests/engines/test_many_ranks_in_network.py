"""What lets a pool of 16,384 ranks be asked about: searches that are not made, and losses that are asked of a tree once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.bounds import cuts
from ringwright.engines.choose import simulate
from ringwright.engines.switch_slots import machines
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.shortest_paths import ShortestPaths
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once
POD = "fat-tree:128,radix=16,switches=tofino"


@pytest.mark.parametrize("spec", ["fat-tree:54", "dgx-h100:4", "torus:4x4", "ring:9", "leaf-spine:12,per_leaf=4"])
def test_distances_are_the_same_from_each_source_and_from_all(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    top = fabric(spec)
    sources, lengths = np.arange(0, top.n_nodes, 3), np.random.default_rng(7).random(top.n_links)
    together = cuts.distances(top, sources, lengths)
    monkeypatch.setattr(cuts, "FEW_LINKS", 0)
    assert np.allclose(cuts.distances(top, sources, lengths), together)


def test_a_link_between_two_is_their_route_and_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A square 0-1-2-3 whose link 3 > 0 is dead."""
    src, dst = np.array([0, 1, 1, 2, 2, 3, 3, 0]), np.array([1, 0, 2, 1, 3, 2, 0, 3])
    rate = np.array([1.0] * 6 + [0.0, 1.0])
    paths = ShortestPaths(4, src, dst, rate)
    both = paths.paths(np.array([0, 3, 0, 2]), np.array([1, 0, 2, 2]))
    assert both.tolist() == [[0, 1, -1, -1], [3, 2, 1, 0], [0, 1, 2, -1], [2, -1, -1, -1]]
    monkeypatch.setattr(paths, "_searched", None)
    assert paths.paths(np.array([0, 2]), np.array([3, 1])).tolist() == [[0, 3], [2, 1]]


def test_losses_of_a_tree_are_asked_once_for_all_of_its_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    top = fabric(POD)
    lossy = replace(top, loss=np.full(top.n_links, 1e-5))
    program = switchml(Collective("all-reduce", range(128), 1 << 20), top)
    asked: list[Any] = []
    real = Topology.routes

    def counted(self: Topology, src: Any, dst: Any) -> Any:
        asked.append(len(src))
        return real(self, src, dst)

    monkeypatch.setattr(Topology, "routes", counted)
    machines([program], lossy)
    assert len(program.streams) == 19  # 16 edges, a switch of each pod, and one above
    assert len(asked) < 12
    monkeypatch.undo()
    assert simulate(program, lossy).time_ps > simulate(program, top).time_ps
    assert simulate(program, top).folded
