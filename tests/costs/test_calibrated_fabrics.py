"""A calibration on any fabric: links have the numbers of one class, and no simulated answer is below its bound."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.bounds.lower_bounds import bounds
from ringwright.costs.calibration import Calibration, LinkClassCosts, calibrated, load, names
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once  # nothing here is compiled

# One of each family that stands for a machine with nodes, and families without any.
SPECS = (
    "dgx-1:2",
    "dgx-2:2",
    "dgx-a100:2",
    "dgx-b200:2",
    "dgx-h100:1",
    "dgx-h100:2",
    "dgx-h100:6,layout=leaf-spine",
    "dgx-h100:3,pxn=no",
    "gb200-nvl72:1",
    "gb200-nvl72:2",
    "leaf-spine:8",
    "mi250:2",
    "mi300:2",
    "ndv2:2",
    "p4d:2",
    "polaris:2",
    "rail-optimised:3,gpus=4",
    "switch:9",
    "torus:4x4",
    "tpu:4x4x2",
)
JOINED = ("nvlink", "xgmi")  # classes of links inside a node
INSIDE, OUTSIDE = LinkClassCosts(3e-6, 1e-7, 123e9), LinkClassCosts(9e-6, 2e-6, 17e9)


def made_up(inside: LinkClassCosts | None, outside: LinkClassCosts | None) -> Calibration:
    return Calibration("x", "dgx-h100:2", "2.21", inside, outside, "made up", "")


def numbers(top: Topology, joined: bool) -> list[object]:
    """Return what links inside nodes have, or all others."""
    of = np.array([(name in JOINED) == joined for name in top.classes])[top.link_class]
    occupying = sorted(name for name in top.occupying if (name in JOINED) == joined)
    costs = sorted((name, cost) for name, cost in top.message_s.items() if (name in JOINED) == joined)
    return [top.rate[of].tolist(), top.latency_s[of].tolist(), occupying, costs]


@pytest.mark.parametrize("spec", [spec for spec in SPECS if fabric(spec).hosts is not None])
def test_links_inside_nodes_have_no_number_of_the_outside(spec: str) -> None:
    top = fabric(spec)
    both, near, far = (calibrated(top, made_up(*pair)) for pair in ((INSIDE, OUTSIDE), (INSIDE, None), (None, OUTSIDE)))
    assert numbers(both, joined=True) == numbers(near, joined=True)
    assert numbers(far, joined=True) == numbers(top, joined=True)
    joined = np.array([name in JOINED for name in top.classes])[top.link_class]
    if joined.any():
        assert numbers(near, joined=False) == numbers(top, joined=False)
        assert (both.rate[joined] != top.rate[joined]).all()


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("spec", SPECS)
def test_no_answer_of_a_calibrated_fabric_is_below_its_bound(spec: str, name: str) -> None:
    top = calibrated(fabric(spec), load(name))
    ranks = range(min(top.n_ranks, 24)) if top.n_ranks < 100 else range(0, top.n_ranks, 9)
    for make, size in ((ring, 1 << 12), (nccl_2_4, 1 << 12), (nccl_2_4, 1 << 28)):
        wanted = Collective("all-reduce", ranks, size)
        assert simulate(make(wanted, top), top).time_s >= bounds(wanted, top, in_network=True)[0].time_s * (1 - 1e-9)


@pytest.mark.parametrize("name", names())
def test_a_nic_of_a_rack_is_as_fast_as_the_ones_that_were_measured(name: str) -> None:
    """A rack has many times the NICs of the node that was measured, and NVLink keeps the calibrated rate."""
    calibration = load(name)
    top = calibrated(fabric("gb200-nvl72:2"), calibration)
    rates = {each: top.rate[top.link_class == number].min() for number, each in enumerate(top.classes)}
    assert rates["nvlink"] == pytest.approx(calibration.inside.rate_bytes_per_s if calibration.inside else 900e9)
    if calibration.outside is not None:
        nics = {"a3-ultra": 1}.get(name, 8)
        assert rates["nic"] == pytest.approx(calibration.outside.rate_bytes_per_s / nics)
        assert set(top.occupying) == {"pcie", "nic"}
    one = calibrated(fabric("gb200-nvl72:1"), calibration)
    assert not one.occupying


def test_a_bound_of_a_rack_is_that_of_its_nvlinks() -> None:
    wanted = Collective("all-reduce", range(144), 4 << 30)
    for name in names():
        calibration = load(name)
        top = calibrated(fabric("gb200-nvl72:2"), calibration)
        faster = calibrated(fabric("gb200-nvl72:2"), msgspec.structs.replace(calibration, outside=None))
        assert bounds(wanted, top, in_network=True)[0].time_s < 2 * bounds(wanted, faster, in_network=True)[0].time_s
