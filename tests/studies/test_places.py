"""Ranks that lie alike: what their groups pass, and who else passes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ringwright.fabrics import fabric
from ringwright.jobs.pricing.places import places
from ringwright.model.topology import SharedCapacity
from ringwright.model.workload import Mesh


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("dgx-h100:2", (("dp", 8), ("tp", 2))),
        ("switch:8", (("dp", 4), ("tp", 2))),
        ("ring:8", (("dp", 8),)),
        ("ndv2:2", (("dp", 16),)),
    ],
)
def test_where_all_lie_alike_none_is_told_apart(name: str, axes: tuple[tuple[str, int], ...]) -> None:
    assert places(fabric(name), Mesh(axes)) is None


def test_pairs_of_gpus_are_told_apart_by_their_links() -> None:
    """On a chain of eight made of links of two rates, pairs differ as their links do."""
    top = fabric("mesh:8")
    ends = np.minimum(top.src, top.dst)
    unlike = replace(top, rate=np.where(ends == 2, top.rate / 2, top.rate))
    mesh = Mesh((("dp", 4), ("tp", 2)))
    before, found = places(top, mesh), places(unlike, mesh)
    assert before is not None
    assert found is not None
    assert before[2] == before[4]
    assert found[2] != found[4]


def test_links_are_told_apart_by_who_else_passes_them() -> None:
    """On a line of eight, pairs pass one link each, all equal; those at the ends share theirs with one ring of four, the others with two."""
    top = fabric("mesh:8")
    found = places(top, Mesh((("dp", 4), ("tp", 2))))
    assert found is not None
    assert found[0] == found[6]
    assert found[2] == found[4]
    assert found[0] != found[2]


def test_a_capacity_that_some_share_tells_them_apart() -> None:
    top = fabric("switch:4")
    mesh = Mesh((("dp", 2), ("tp", 2)))
    assert places(top, mesh) is None
    out = np.flatnonzero(np.isin(top.src, [0, 1]))
    found = places(replace(top, groups=(SharedCapacity("host", float(top.rate[0]), out),)), mesh)
    assert found is not None
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0] != found[2]
