"""A torus of namespaces: Camdoop's trees load every link alike, where a ring leaves most of them idle."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright_lab.bench import BenchSpec, bench
from ringwright_lab.network import spec
from ringwright_lab.reports import benched

pytestmark = pytest.mark.once


@pytest.mark.lab
def test_trees_of_a_torus_load_every_link_alike() -> None:
    asked = "torus:2x2x2,rate=20Mb/s"
    question = BenchSpec("all-reduce", 8, [240_000], algorithms=["ring", "camdoop"], rounds=1, warmup=0, lab=asked)
    result = bench(question)
    rows: dict[str, Any] = {row["algorithm"]: row for row in result["rows"]}
    assert {row["wrong"] for row in rows.values()} == {0}
    camdoop, ring = rows["camdoop"], rows["ring"]
    # Up and down three trees of each root: 2/3 (N-1)/N of the data on every link, and headers.
    wire = 2 / 3 * 7 / 8 * 240_000
    assert wire < camdoop["least_port_bytes"] <= camdoop["most_port_bytes"] < 1.15 * wire
    assert camdoop["most_port_bytes"] < 1.03 * camdoop["least_port_bytes"]
    assert 3 * camdoop["least_port_bytes"] <= camdoop["sent_bytes"] <= 3 * camdoop["most_port_bytes"]
    assert ring["least_port_bytes"] < 0.2 * ring["most_port_bytes"]
    said = io.StringIO()
    benched.write(result, said, width=200)
    assert f"{camdoop['least_port_bytes']} to {camdoop['most_port_bytes']} B a link" in said.getvalue()


def test_ranks_alone_may_be_joined_in_any_way_whose_routes_are_static() -> None:
    for asked, ports in (("torus:2x2x2,rate=20Mb/s", 24), ("torus:3x3,rate=20Mb/s", 36), ("full:4,rate=20Mb/s", 12)):
        built = spec.read(asked)
        assert (len(built.ports), built.is_routed) == (ports, True)


def test_routes_that_know_where_a_packet_comes_from_are_refused() -> None:
    torus = fabric("ring:4,rate=20Mb/s")

    def paths(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """From 0 to 2 by 1, yet from 1 to 2 by 0 and 3."""
        known = {(0, 2): [0, 1, 2], (1, 2): [1, 0, 3, 2]}
        plain = torus.paths
        assert plain is not None
        every = [
            known.get((a, b)) or plain(np.array([a]), np.array([b]))[0].tolist()
            for a, b in zip(src.tolist(), dst.tolist(), strict=True)
        ]
        return np.array([[*nodes, -1, -1, -1, -1][:4] for nodes in every])

    with pytest.raises(UsageError, match="two ways, a static route has one"):
        spec.read(replace(torus, paths=paths))
