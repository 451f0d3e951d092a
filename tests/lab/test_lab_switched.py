"""Switches of a lab that add: real namespaces, one level and two, and loss on the cables below them."""

from __future__ import annotations

import pytest

from ringwright.ground.errors import UsageError
from ringwright_lab import network as lab
from ringwright_lab.bench import BenchSpec, bench
from ringwright_lab.network import bridges, spec

pytestmark = [pytest.mark.lab, pytest.mark.once]


@pytest.mark.parametrize(
    ("fabric", "faults"),
    [("switch:3,rate=50Mb/s", ["link rank1 loss 2%"]), ("leaf-spine:4,spines=1,rate=50Mb/s", [])],
)
def test_the_labs_switches_add(fabric: str, faults: list[str]) -> None:
    ranks = spec.read(fabric).n
    question = BenchSpec(
        "all-reduce", ranks, [200_000], algorithms=["ring", "switchml"], rounds=2, warmup=0, lab=fabric, faults=faults
    )
    rows = bench(question)["rows"]
    assert [(row["algorithm"], row["wire"], row["wrong"]) for row in rows] == [
        ("ring", "sockets", 0),
        ("switchml", "switch", 0),
    ]
    sent = {row["algorithm"]: row["sent_bytes"] for row in rows}
    assert 200_000 < sent["switchml"] < 2 * 200_000  # once, headers and the round of exponents, where a ring ...
    assert sent["ring"] > 2 * (ranks - 1) / ranks * 200_000


def test_loss_goes_to_the_cables_where_switches_add() -> None:
    built = spec.read("switch:3,rate=50Mb/s")
    plain, adding = bridges.layout(built, [0]), bridges.layout(built, [0], adds=True)
    assert (list(plain.switches), list(plain.wires)) == ([3], [])
    assert (list(adding.switches), len(adding.wires)) == ([], 1)
    with pytest.raises(UsageError, match="no switch that could add"), lab.network("ring:4,rate=50Mb/s", adds=True):
        pass
