"""The compiled loop of the greedy matching beside its Python twin, to the bit; and arrays that it must refuse."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ringwright.algorithms.networks import ArcNetwork
from ringwright.algorithms.synthesis.expand._loop import Wanted, matched_slowly
from ringwright.native import expand as native

pytestmark = pytest.mark.skipif(native is None, reason="no compiled loop")


def network(draw: random.Random, p: int) -> ArcNetwork:
    """Return arcs that share some resources, of which some are busy during their latency."""
    arcs = sorted({(a, b) for a in range(p) for b in range(p) if a != b and draw.random() < 0.6} | {(0, 1)})
    resources = draw.randint(1, 2 * len(arcs))
    lengths = [draw.randint(0, 3) for _ in arcs]
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return ArcNetwork(
        p,
        np.array([a for a, _ in arcs], np.int32),
        np.array([b for _, b in arcs], np.int32),
        starts,
        np.array([draw.randrange(resources) for _ in range(int(starts[-1]))], np.int32),
        np.array([draw.choice((0, 0, 700)) for _ in arcs], np.int64),
        np.array([draw.choice((0.0, 20.0, 33.3, 40.0)) for _ in range(resources)]),
        np.array([draw.choice((0, 500_000, 7)) for _ in range(resources)], np.int64),
        np.array([draw.choice((0, 1)) for _ in range(resources)], np.uint8),
    )


def wanted(draw: random.Random, p: int) -> Wanted:
    """Return chunks for all, or each for one rank."""
    count, exchanges = draw.randint(1, 12), draw.random() < 0.4
    far = np.array([[abs(at - target) for at in range(p)] for target in range(p)], np.int32).ravel()
    yards = draw.choice(([], [rank // 2 for rank in range(p)], [0] * p))
    return Wanted(
        np.array([draw.randrange(p) for _ in range(count)], np.int32),
        np.array([draw.randrange(p) if exchanges else -1 for _ in range(count)], np.int32),
        np.array([draw.choice((0, 4, 1021, 1 << 20)) for _ in range(count)], np.int64),
        far if exchanges else np.zeros(0, np.int32),
        np.array([] if exchanges else yards, np.int32),
    )


def arguments(net: ArcNetwork, chunks: Wanted) -> dict[str, Any]:
    return {name: getattr(net, name) for name in net.__dataclass_fields__} | {
        name: getattr(chunks, name) for name in chunks.__dataclass_fields__
    }


@pytest.mark.parametrize("seed", range(150))
def test_twins_are_equal(seed: int) -> None:
    draw = random.Random(seed)
    p = draw.randint(2, 6)
    net, chunks = network(draw, p), wanted(draw, p)
    merge, taper, rarest = draw.choice((1, 2, 8)), draw.choice((0, 2, 3)), draw.random() < 0.5
    lots = draw.choice((0, 1, 2**63, 2**64 - 1, 999_999_999))
    found = native.matched(**arguments(net, chunks), merge=merge, taper=taper, rarest=rarest, seed=lots)
    slowly = matched_slowly(net, chunks, merge, taper, lots, rarest=rarest)
    for mine, twin in zip(found, vars(slowly).values(), strict=True):
        assert mine.dtype == twin.dtype
        assert mine.tolist() == twin.tolist()


HOSTILE = {
    "src": np.array([9], np.int32),
    "dst": np.array([-1], np.int32),
    "hop_starts": np.array([0, 5], np.int64),
    "hops": np.array([7], np.int32),
    "delay": np.array([-1], np.int64),
    "ps_per_byte": np.array([np.nan]),
    "latency": np.array([1 << 62], np.int64),
    "holds": np.zeros(3, np.uint8),
    "root": np.array([2], np.int32),
    "target": np.array([-2], np.int32),
    "size_bytes": np.array([-4], np.int64),
    "far": np.zeros(1, np.int32),
    "yard": np.array([5, 0], np.int32),
    "merge": 0,
    "taper": -1,
    "p": 0,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arrays_are_refused(name: str) -> None:
    good: dict[str, Any] = {
        "p": 2,
        "src": np.array([0], np.int32),
        "dst": np.array([1], np.int32),
        "hop_starts": np.array([0, 1], np.int64),
        "hops": np.array([0], np.int32),
        "delay": np.array([0], np.int64),
        "ps_per_byte": np.array([20.0]),
        "latency": np.array([5], np.int64),
        "holds": np.array([1], np.uint8),
        "root": np.array([0], np.int32),
        "target": np.array([1], np.int32),
        "size_bytes": np.array([4], np.int64),
        "far": np.array([0, 1, 1, 0], np.int32),
        "yard": np.zeros(0, np.int32),
        "merge": 1,
        "taper": 0,
        "rarest": False,
        "seed": 0,
    }
    assert native.matched(**good)[3].tolist() == [85]
    with pytest.raises(ValueError, match=r"."):
        native.matched(**good | {name: HOSTILE[name]})


def test_times_that_add_up_to_too_much_are_refused() -> None:
    net = network(random.Random(1), 3)
    chunks = wanted(random.Random(1), 3)
    sizes = {"size_bytes": np.full(len(chunks.root), 1 << 60, np.int64)}
    none = {"root": np.zeros(0, np.int32), "target": np.zeros(0, np.int32), "size_bytes": np.zeros(0, np.int64)}
    late = none | {"latency": np.full(len(net.latency), (1 << 62) - 1, np.int64)}  # though nothing is sent
    for given in (sizes, late):
        with pytest.raises(ValueError, match="overflows"):
            native.matched(**arguments(net, chunks) | given, merge=1, taper=0, rarest=False, seed=0)
