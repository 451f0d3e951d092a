"""Fabrics: every family builds, routes along its own links, tells the truth about its symmetry, and scales."""

from __future__ import annotations

import contextlib
import io
import json
import math
import time

import numpy as np
import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric, families, family, knobs
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model.topology import NIC, RANK, SWITCH, Topology
from ringwright.model.wiring import Dimension, Names, Wires, lattice
from shared_data import needs_shared_data, real

SMALL = [
    "ring:8",
    "ring:7",
    "ring:2",
    "ring:1",
    "torus:4x3",
    "torus:2x2x3",
    "torus:4x4x4",
    "mesh:3x3x2",
    "mesh:5",
    "hypercube:16",
    "hypercube:1",
    "full:5",
    "switch:9",
    "switch:1",
    "middleboxes:3x2x2",
    "leaf-spine:64",
    "leaf-spine:8",
    "leaf-spine:7",
    "leaf-spine:64,routing=ecmp,seed=3",
    "leaf-spine:48,per_leaf=8,spines=4,oversubscription=2",
    "leaf-spine:1",
    "fat-tree:16",
    "fat-tree:14",
    "fat-tree:54,radix=6,routing=ecmp",
    "fat-tree:1",
    "dragonfly:5x2x2",
    "dragonfly:1x3x2",
    "dragonfly:5x1x2",
    "dragonfly-plus:5x2x2",
    "dragonfly-plus:1x2x4,spines=2",
    "rail-optimised:3,gpus=4",
    "dgx-1",
    "dgx-1:3",
    "ndv2:2",
    "dgx-2:2",
    "dgx-a100:2",
    "dgx-h100",
    "dgx-h100:4",
    "dgx-h100:8,per_leaf=4,spines=2",
    "dgx-h100:3,pxn=no",
    "dgx-h100:6,layout=leaf-spine,routing=ecmp",
    "dgx-h100:3,layout=switch",
    "dgx-b200:2",
    "gb200-nvl72:2",
    "p4d:2",
    "polaris:2",
    "mi250",
    "mi250:3",
    "mi250:2,pxn=yes",
    "mi300:2",
    "tpu:4x4x2",
    "tpu:16x4,generation=v5e",
]
LARGE = [
    "ring:131072",
    "torus:64x64x32",
    "mesh:64x64x32",
    "hypercube:131072",
    "switch:131072",
    "leaf-spine:131072",
    "fat-tree:131072",
    "dragonfly:256x32x16",
    "dragonfly-plus:64x64x32",
    "rail-optimised:16384",
    "dgx-h100:16384",
    "dgx-1:16384",
    "dgx-2:8192",
    "mi250:8192",
    "mi300:16384",
    "gb200-nvl72:1820",
    "p4d:16384",
    "ndv2:16384",
    "dgx-a100:16384",
    "dgx-b200:16384",
    "tpu:48x52x52",
]


def all_pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    src, dst = np.divmod(np.arange(n * n), n)
    return src, dst


def check_walks(top: Topology, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    starts, links = top.routes(src, dst)
    for pair in range(len(src)):
        way = links[starts[pair] : starts[pair + 1]]
        nodes = [int(src[pair]), *top.dst[way].tolist()]
        assert nodes[:-1] == top.src[way].tolist()
        assert nodes[-1] == dst[pair]
        assert len(set(nodes)) == len(nodes), "a route meets itself"
    return starts, links


@pytest.mark.parametrize("spec", SMALL)
def test_routes_follow_links_between_all_pairs(spec: str) -> None:
    top = fabric(spec)
    assert top.name == spec
    assert math.prod(size for _, size in top.axes) == top.n_ranks
    assert top.kinds[: top.n_ranks].tolist() == [RANK] * top.n_ranks
    assert not (top.kinds[top.n_ranks :] == RANK).any()
    assert top.provenance
    check_walks(top, *all_pairs(top.n_ranks)) if top.n_ranks <= 80 else None
    some = np.random.default_rng(0).integers(0, top.n_ranks, (2, 200))
    check_walks(top, *some)


@pytest.mark.parametrize("spec", SMALL)
def test_every_name_is_found_again(spec: str) -> None:
    top = fabric(spec)
    labels = [top.label(node) for node in range(top.n_nodes)]
    assert len(set(labels)) == top.n_nodes
    assert [top.find(label) for label in labels] == list(range(top.n_nodes))
    for wrong in ("", "nobody", "rank-1", "node01/gpu0", labels[0] + "0" * 12, "leaf99999"):
        with pytest.raises(UsageError, match="has no"):
            top.find(wrong)


@pytest.mark.parametrize("spec", [spec for spec in SMALL if fabric(spec).is_symmetric])
def test_symmetric_means_that_turning_an_axis_changes_nothing(spec: str) -> None:
    """Turn each axis by one: routes must map to routes by one permutation of the links, of equal rate and latency."""
    top = fabric(spec)
    src, dst = all_pairs(top.n_ranks)
    if top.n_ranks > 80:
        chosen = np.random.default_rng(1).integers(0, len(src), 4000)
        src, dst = src[chosen], dst[chosen]
    stride = 1
    for _, size in top.axes:
        rank = np.arange(top.n_ranks)
        place = rank // stride % size
        turned = rank + ((place + 1) % size - place) * stride
        starts, links = top.routes(src, dst)
        starts_after, links_after = top.routes(turned[src], turned[dst])
        assert (starts == starts_after).all()
        pairs = np.unique(np.stack((links, links_after)), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1] == len(np.unique(pairs[1])), "not one to one"
        for column in (top.rate, top.latency_s, top.link_class):
            assert (column[pairs[0]] == column[pairs[1]]).all()
        stride *= size


@pytest.mark.parametrize("spec", ["mesh:3x3", "dgx-1", "dgx-2:2", "p4d:2", "mi250", "leaf-spine:7", "dragonfly:5x2x2"])
def test_what_is_not_symmetric_says_so(spec: str) -> None:
    assert not fabric(spec).is_symmetric


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize("spec", LARGE)
def test_131072_ranks_are_quick_and_small(spec: str) -> None:
    start_s = time.process_time()
    top = fabric(spec)
    near = np.arange(256)
    top.routes(near, near + 1)
    took_s = time.process_time() - start_s
    assert top.n_ranks >= 129_000
    assert took_s < 5, "about a second on an idle machine"
    arrays = (top.kinds, top.src, top.dst, top.rate, top.latency_s, top.link_class)
    assert sum(array.nbytes for array in arrays) < 64e6
    assert top.label(top.n_nodes - 1)


def test_the_folder_is_the_registry() -> None:
    for name in families():
        build = family(name)
        assert build.__name__ == name.replace("-", "_")
        assert build.__doc__
    assert {spec.split(":")[0] for spec in SMALL} == set(families())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("swtich:8", "did you mean switch"),
        ("", "no fabric"),
        ("ring:-1", "no size"),
        ("ring:0", "no size"),
        ("ring:1x", "no size"),
        ("ring", "cannot be built"),
        ("ring:2x2", "cannot be built"),
        ("ring:8,speed=3", "no knob"),
        ("ring:8,rate", "no knob=value"),
        ("ring:8,rate=fast", "cannot have rate=fast"),
        ("ring:8,latency_s=1parsec", "latency_s is a number"),
        ("ring:99999999999", "no size"),
        ("hypercube:12", "does not exist"),
        ("full:131072", "too many links"),
        ("dgx-h100:0", "does not exist"),
        ("dgx-h100:2,routing=luck", "routing is d-mod-k, ecmp"),
        ("tpu:4,generation=v9", "generation is v4, v5e, v5p, v6e"),
        ("dgx-h100:2,layout=star", "layout is rails, leaf-spine"),
        ("fat-tree:16,radix=3", "no fat tree"),
        ("leaf-spine:0", "does not exist"),
        ("leaf-spine:8,per_leaf=0", "from 1 to"),
        ("leaf-spine:8,oversubscription=0", "from 0.01"),
        ("dragonfly:0x1x1", "does not exist"),
        ("fat-tree:4096,radix=4", "no fat tree"),
        ("../x:3", "no fabric"),
        ("leaf-spine:999999999", "does not exist"),
        ("fat-tree:999999999", "does not exist"),
        ("dragonfly:9999x9999x9999", "does not exist"),
        ("dragonfly-plus:9999x9999x9999", "does not exist"),
        ("ring:999999999", "no size"),
        ("torus:9999x9999x9999", "no size"),
        ("rail-optimised:2,gpus=99999", "from 1 to 256"),
        ("gb200-nvl72:131072", "does not exist"),
        ("leaf-spine:8,per_leaf=two", "from 1 to"),
        ("ring:8,rate=-5", "rate is a number from 1000"),
    ],
)
def test_a_wrong_line_is_a_usage_error(spec: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        fabric(spec)
    assert says in str(caught.value)


def test_knobs_are_told_and_taken() -> None:
    assert {name: knob.default for name, knob in knobs("ring").items()} == {
        "rate": 50 * 2.0**30,
        "latency_s": 0.5e-6,
        "transport": None,
    }
    assert knobs("dgx-h100")["pxn"].default is True
    top = fabric("ring:4,rate=400Gb/s", latency_s=2e-6)
    assert (top.rate == 50e9).all()
    assert (top.latency_s == 2e-6).all()
    assert top.name == "ring:4,rate=400Gb/s,latency_s=2e-06"
    with pytest.raises(UsageError, match="no knob 'speed'"):
        fabric("ring:4", speed=1)


def degree_rate(top: Topology, node: int, link_class: str) -> float:
    of_class = top.link_class == top.classes.index(link_class)
    return float(top.rate[(top.src == node) & of_class].sum())


@pytest.mark.parametrize(
    ("spec", "link_class", "rate"),
    [
        ("dgx-1", "nvlink", 150e9),
        ("ndv2", "nvlink", 150e9),
        ("dgx-2", "nvlink", 150e9),
        ("dgx-a100", "nvlink", 300e9),
        ("p4d", "nvlink", 300e9),
        ("dgx-h100", "nvlink", 450e9),
        ("dgx-b200", "nvlink", 900e9),
        ("gb200-nvl72", "nvlink", 900e9),
        ("mi300", "xgmi", 448e9),
        ("tpu:4x4x4", "ici", 300e9),
        ("tpu:16x16,generation=v5e", "ici", 200e9),
        ("dgx-h100", "pcie", 63e9),
    ],
)
def test_rates_of_a_gpu_are_those_of_the_data_sheet(spec: str, link_class: str, rate: float) -> None:
    top = fabric(spec)
    assert {degree_rate(top, rank, link_class) for rank in range(top.n_ranks)} == {rate}


@needs_shared_data
@pytest.mark.parametrize(("spec", "file"), [("dgx-1", "dgx1"), ("mi250", "mi250x16")])
def test_direct_links_are_those_of_the_published_graphs(spec: str, file: str) -> None:
    import json

    top = fabric(spec)
    ours = {
        (int(src), int(dst)): round(rate)
        for src, dst, rate in zip(top.src, top.dst, top.rate, strict=True)
        if max(src, dst) < top.n_ranks
    }
    edges = json.loads(real(f"bench-topologies/{file}.json").read_text())["edges"]
    assert ours == {(src, dst): round(rate * 2**30) for src, dst, rate, _ in edges}


def test_a_box_has_nics_hosts_and_readable_names() -> None:
    top = fabric("dgx-h100:4")
    assert top.label(top.n_ranks - 1) == "node3/gpu7"
    nic = top.find("node3/nic2")
    assert top.kinds[nic] == NIC
    assert top.kinds[top.find("node1/nvswitch")] == SWITCH
    assert top.hosts is not None
    assert top.hosts.tolist() == np.repeat(np.arange(4), 8).tolist()
    assert top.axes == (("gpu", 8), ("node", 4))
    rack = fabric("gb200-nvl72:2")
    assert rack.hosts is not None
    assert rack.hosts.max() == 35
    assert rack.label(143) == "rack1/gpu71"


def way(top: Topology, src: str, dst: str) -> list[str]:
    _, links = top.routes(np.array([top.find(src)]), np.array([top.find(dst)]))
    return [top.label(int(node)) for node in top.dst[links]]


def test_a_message_changes_its_rail_within_the_box() -> None:
    with_pxn = way(fabric("dgx-h100:2"), "node0/gpu1", "node1/gpu5")
    assert with_pxn == ["node0/nvswitch", "node0/gpu5", "node0/nic5", "leaf5", "node1/nic5", "node1/gpu5"]
    without = way(fabric("dgx-h100:2,pxn=no"), "node0/gpu1", "node1/gpu5")
    assert [name.rstrip("0123456789") for name in without] == [
        "node0/nic",
        "leaf",
        "spine",
        "leaf",
        "node1/nic",
        "node1/gpu",
    ]
    shared = fabric("p4d:2")
    assert way(shared, "node0/gpu3", "node1/gpu0") == [
        "node0/pcie1",
        "node0/nic1",
        "leaf0",
        "node1/nic0",
        "node1/pcie0",
        "node1/gpu0",
    ]
    assert way(fabric("dgx-1"), "node0/gpu0", "node0/gpu7")[-1] == "node0/gpu7"


def test_two_gpus_are_as_far_apart_as_published() -> None:
    """NDv2 and DGX-2 in the public TE-CCL inputs: 0.7 us over NVLink, 1.3 us over the network and one switch."""
    top = fabric("dgx-h100:2")
    starts, links = top.routes(np.array([0, 0]), np.array([1, 8]))
    far = np.add.reduceat(top.latency_s[links], starts[:-1])
    assert far == pytest.approx([0.7e-6, 1.3e-6])


def test_uplinks_follow_the_oversubscription() -> None:
    for spec, factor in (
        ("leaf-spine:512", 1),
        ("leaf-spine:512,oversubscription=4", 4),
        ("dgx-h100:64,oversubscription=2", 2),
    ):
        top = fabric(spec)
        leaf = top.find("leaf0")
        ports, uplinks = degree_rate(top, leaf, "nic"), degree_rate(top, leaf, "spine")
        assert uplinks == pytest.approx(ports / factor)
    tree = fabric("fat-tree:16,oversubscription=2")
    edge = tree.find("edge0")
    assert degree_rate(tree, edge, "nic") == 2 * degree_rate(tree, edge, "edge")


def test_d_mod_k_spreads_evenly_and_ecmp_by_seed() -> None:
    static, hashed, other = (fabric("leaf-spine:64" + text) for text in ("", ",routing=ecmp", ",routing=ecmp,seed=1"))
    src, dst = np.arange(32), np.arange(32) + 32
    uplinks = [top.routes(src, dst)[1].reshape(32, 4)[:, 1] for top in (static, hashed, other)]
    assert len(np.unique(uplinks[0])) == 32
    assert 10 < len(np.unique(uplinks[1])) < 32, "a hash collides"
    assert (uplinks[1] != uplinks[2]).any()
    assert (uplinks[1] == fabric("leaf-spine:64,routing=ecmp").routes(src, dst)[1].reshape(32, 4)[:, 1]).all()


def test_who_can_add_in_the_network() -> None:
    assert not fabric("dgx-a100:2").aggregators
    h100 = fabric("dgx-h100:2")
    assert {h100.label(node) for node in h100.aggregators} == {"node0/nvswitch", "node1/nvswitch"}
    assert h100.aggregators[h100.find("node0/nvswitch")].fanin_max == 8
    assert "bfloat16" in fabric("gb200-nvl72").aggregators[144].dtypes
    assert len(fabric("switch:8,sharp=yes").aggregators) == 1
    assert {
        fabric("leaf-spine:64,sharp=yes").label(node)[:4] for node in fabric("leaf-spine:64,sharp=yes").aggregators
    } == {
        "leaf",
        "spin",
    }


def test_a_backplane_is_shared_by_all_ports() -> None:
    top = fabric("switch:4,backplane=100GB/s")
    (group,) = top.groups
    assert group.rate == 100e9
    assert sorted(top.src[group.links].tolist()) == [0, 1, 2, 3]


def test_dimension_order_and_the_shorter_way() -> None:
    top = fabric("torus:5x4")
    assert way(top, "rank0", "rank9") == ["rank4", "rank9"]
    assert way(top, "rank0", "rank12") == ["rank1", "rank2", "rank7", "rank12"]
    assert len(check_walks(fabric("ring:9"), np.array([0]), np.array([5]))[1]) == 4


def test_products_of_different_dimensions() -> None:
    dimensions = [
        Dimension("ring", 4, 1e9, 1e-6, "x"),
        Dimension("switch", 3, 2e9, 0, "y"),
        Dimension("full", 3, 3e9, 0, "z"),
    ]
    top = lattice("mixed", dimensions)
    check_walks(top, *all_pairs(36))
    assert top.n_nodes == 36 + 12
    assert way(top, "rank0", "rank35")[-1] == "rank35"
    with pytest.raises(UsageError, match="joins no ranks"):
        lattice("odd", [Dimension("star", 4, 1e9, 0, "x")])


def test_wires_refuse_impossible_links() -> None:
    for rate, latency_s in ((-1.0, 0.0), (1.0, -1.0), (1.0, math.nan), (math.nan, 0.0), (1.0, math.inf)):
        with pytest.raises(UsageError, match="impossible"):
            Wires().one_way([0], [1], rate, latency_s, "link")


def test_no_way_is_an_infeasible_error() -> None:
    wires = Wires()
    wires.one_way([0], [1], 1e9, 0.0, "link")
    top = wires.topology("half", 2, np.zeros(2, np.uint8))
    with pytest.raises(InfeasibleError, match="no way from rank1 to rank0"):
        top.routes(np.array([1]), np.array([0]))


def test_names_are_a_sequence() -> None:
    names = Names(("node{}/gpu{}", (2, 3)), ("node{}/{}", (2, ("nvswitch", "cpu0"))), ("hub", ()))
    assert len(names) == 11
    assert names[-1] == "hub"
    assert names[5:8] == ["node1/gpu2", "node0/nvswitch", "node0/cpu0"]
    assert [names.index(name) for name in names] == list(range(11))
    with pytest.raises(IndexError):
        _ = names[11]
    for wrong in ("node2/gpu0", "node0/gpu3", "node0/gpu00", "node0/", "node\u0662/gpu0", "hubb"):
        with pytest.raises(ValueError, match="no node"):
            names.index(wrong)


def test_a_rack_is_one_domain_and_elsewhere_a_host_is() -> None:
    rack = fabric("gb200-nvl72:3")
    assert rack.domains is not None
    assert rack.domains.tolist() == np.repeat(np.arange(3), 72).tolist()
    assert (rack.nics_per_domain, rack.nics_per_node) == (72, 4)
    for spec in SMALL:
        top = fabric(spec)
        if not spec.startswith("gb200"):
            assert np.array_equal(top.domains, top.hosts) if top.hosts is not None else top.domains is None
            assert top.nics_per_domain == top.nics_per_node


BOXES = ("dgx-1", "dgx-2", "dgx-a100", "dgx-b200", "dgx-h100", "gb200-nvl72", "mi250", "mi300", "p4d", "polaris")


@pytest.mark.parametrize("family", BOXES)
def test_boxes_have_as_many_nics_as_are_asked_for(family: str) -> None:
    """GPUs share them evenly and neighbours the same one; what comes with the product is the same as asked for."""
    usual = fabric(f"{family}:2")
    most = usual.nics_per_domain
    counts = [count for count in (1, 2, 4, 8) if count <= most]
    for count in counts:
        top = fabric(f"{family}:2,nics={count}")
        assert (top.n_ranks, top.nics_per_domain) == (usual.n_ranks, count)
        half = top.n_ranks // 2
        starts, links = top.routes(np.arange(half), np.arange(half) + half)
        first = [
            next(int(node) for node in top.dst[links[starts[rank] : starts[rank + 1]]] if top.kinds[node] == NIC)
            for rank in range(half)
        ]
        assert first == sorted(first)
        assert sorted(map(first.count, set(first))) == [half // count] * count
    same = fabric(f"{family}:2,nics={most}")
    assert same.src.tolist() == usual.src.tolist()
    assert same.rate.tolist() == usual.rate.tolist()
    for wrong in (0, most + 1, 3 if family != "gb200-nvl72" else 5):
        with pytest.raises(UsageError):
            fabric(f"{family}:2,nics={wrong}")


def test_fewer_nics_are_slower_in_proportion() -> None:
    """Two boxes of A100 with one NIC and with four: 24 and 86 GB/s were measured (NVIDIA/nccl issue 1048)."""
    spec = ["simulate", "all-reduce", "--algorithm", "nccl-2-4@2.20", "-b", "1G", "--json"]
    rates = []
    for nics in (1, 4, 8):
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main([*spec, "--fabric", f"dgx-a100:2,nics={nics}"]) == 0
        rates.append(json.loads(told.getvalue())["rows"][0]["busbw_gbs"])
    assert rates[0] == pytest.approx(24, rel=0.1)
    assert rates[1] == pytest.approx(86, rel=0.2)
    assert rates[0] < rates[1] < rates[2]
