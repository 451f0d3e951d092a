"""NCCL's cost model: tables of public logs to the printed digit, traps between releases, choices that stay."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.costs.nccl import (
    ALGORITHMS,
    NODE_TYPES,
    OPS,
    PROTOCOLS,
    Graph,
    Graphs,
    NcclSystem,
    choose,
    chunking,
    constants,
    costs,
    cut,
    named_system,
    predict_us,
    releases,
    sweep,
    tables,
    tree_threshold_bytes,
)
from ringwright.costs.nccl.selection import ALWAYS_TREE, algorithm_2_4
from ringwright.ground.errors import InfeasibleError, UsageError
from shared_data import needs_shared_data, real

SIZES = [0, *(1 << power for power in range(3, 37))]


def rows(system: NcclSystem, release: str, algorithm: str) -> dict[str, list[str]]:
    """Return the table as NCCL prints it: latency/bandwidth with one digit, per operation."""
    found = tables(system, release)
    keys = {op: [(op, algorithm, protocol) for protocol in PROTOCOLS] for op in OPS}
    return {
        op: [f"{found.latency_us[key]:.1f}/{found.bandwidth_gbs[key]:.1f}" for key in three]
        for op, three in keys.items()
    }


# ---------------------------------------------------------------------------------------------- tables of public logs
# NVIDIA/nccl issue 1519: 2 nodes x 8 H100, network behind the host bridge, trees switched off by NCCL_ALGO.
ISSUE_1519 = NcclSystem(
    Graphs(
        Graph(4, 2, 10.0, 10.0, "NVL", "PHB"),
        Graph(1, 2, 10.0, 10.0, "NVL", "PHB"),
        nvls=Graph(5, 7, 3.0, 3.0, "NVL", "PHB"),
    ),
    nodes=2,
    ranks=16,
    capability=90,
    nvswitch=True,
)


@pytest.mark.parametrize("release", ["2.19.4", "2.20.3", "2.20.5"])
def test_issue_1519_to_the_printed_digit(release: str) -> None:
    ring = rows(ISSUE_1519, release, "ring")
    assert ring["broadcast"] == ring["reduce"] == ["9.3/5.0", "18.0/0.0", "22.4/20.0"]
    assert ring["all-gather"] == ring["reduce-scatter"] == ["23.3/5.3", "44.6/0.0", "70.0/21.3"]
    assert ring["all-reduce"][:2] == ["43.4/2.7", "79.4/0.0"]
    tree = [cell.split("/")[0] for cell in rows(ISSUE_1519, release, "tree")["all-reduce"]]
    assert tree == ["25.2", "48.5", "448.0"]
    assert rows(ISSUE_1519, release, "tree")["broadcast"] == ["0.0/0.0"] * 3
    direct = rows(ISSUE_1519, release, "collnet_direct")
    assert direct["all-gather"] == direct["reduce-scatter"] == ["5.6/0.0", "5.6/0.0", "44.0/0.0"]


@pytest.mark.parametrize("release", ["2.18.5", "2.21.5", "2.23.4", "2.16.5"])
def test_issue_1519_is_not_another_release(release: str) -> None:
    """LL at a quarter of the bus, a tree hop of 28 us and 2N inter-node steps together: only 2.19 and 2.20."""
    ours = rows(ISSUE_1519, "2.20.5", "ring"), rows(ISSUE_1519, "2.20.5", "tree")
    assert ours != (rows(ISSUE_1519, release, "ring"), rows(ISSUE_1519, release, "tree"))


# NVIDIA/nccl issue 754: 4 nodes x 4 GPUs over PCIe, 2.8 to 2.11.
ISSUE_754 = NcclSystem(
    Graphs(Graph(4, 1, 3.0, 3.0, "PHB", "PHB"), Graph(1, 1, 3.0, 3.0, "PHB", "PHB")), nodes=4, ranks=16, capability=80
)


@pytest.mark.parametrize("release", ["2.8.4", "2.10.3"])
def test_issue_754_to_the_printed_digit(release: str) -> None:
    ring = rows(ISSUE_754, release, "ring")
    assert ring["broadcast"] == ring["reduce"] == ["6.3/0.8", "14.0/0.0", "18.0/3.0"]
    assert ring["all-gather"] == ["33.3/0.8", "52.0/0.0", "105.6/3.2"]


# NVIDIA/nccl issue 1453: 3 nodes x 8 H100, 8 channels x 24 GB/s, plain trees.
ISSUE_1453 = NcclSystem(
    Graphs(Graph(4, 8, 24.0, 24.0, "NVL", "PXB"), Graph(3, 8, 24.0, 24.0, "NVL", "PXB")),
    nodes=3,
    ranks=24,
    capability=90,
)


@pytest.mark.parametrize("release", ["2.20.5", "2.21.5", "2.22.3"])
@pytest.mark.parametrize(
    ("size_bytes", "protocol", "time_us"),
    [
        (8, "ll", 25.200924),
        (256, "ll", 25.229528),
        (512, "ll", 25.259054),
        (65536, "ll", 37.798233),
        (131072, "ll128", 51.603912),
    ],
)
def test_issue_1453_predicted_times(release: str, size_bytes: int, protocol: str, time_us: float) -> None:
    found = choose("all-reduce", size_bytes, ISSUE_1453, release)
    assert (found.algorithm, found.protocol) == ("tree", protocol)
    assert found.time_us == pytest.approx(time_us, abs=2e-6)


# Two ranks on two "nodes" of one GPU over sockets, 2.29.7: 2 channels x 1.2 GB/s, a tree may use twice the network.
SOCKETS = NcclSystem(
    Graphs(Graph(4, 2, 1.2, 1.2, "LOC", "SYS", same_channels=False), Graph(3, 2, 2.4, 1.2, "LOC", "SYS")),
    nodes=2,
    ranks=2,
    capability=120,
)
SWEEP = "real/nccl-logs/eunomia_p3-allgather-reducescatter-sweep.md"
TABLE_ROW = re.compile(r"NCCL INFO +(AllGather|ReduceScatter) \|(.*)")
PICKED = re.compile(r"(\d+) Bytes -> Algo (\w+) +proto (\w+) +channel\{Lo\.\.Hi\}=\{0\.\.(\d+)\}")


@needs_shared_data
def test_the_sweep_log_prints_our_table() -> None:
    printed = [match for line in real(SWEEP).read_text().splitlines() if (match := TABLE_ROW.search(line))]
    assert len(printed) == 2
    for match in printed:
        op = {"AllGather": "all-gather", "ReduceScatter": "reduce-scatter"}[match[1]]
        cells = [cell.replace(" ", "") for cell in match[2].strip("|").split("|")]
        assert cells == rows(SOCKETS, "2.29.7", "tree")[op] + rows(SOCKETS, "2.29.7", "ring")[op]


@needs_shared_data
@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter"])
def test_the_sweep_log_picks_what_we_pick(op: str) -> None:
    """All sizes of the log, PAT at 32 KiB and the channels included; it prints bytes per rank, half of the total."""
    picked = [match for line in real(SWEEP).read_text().splitlines() if (match := PICKED.search(line))]
    assert len(picked) == 23
    for match in picked:
        found = choose(op, 2 * int(match[1]), SOCKETS, "2.29.7")
        told = found.algorithm, found.protocol, found.channels_used
        assert told == (match[2].lower(), match[3].lower(), int(match[4]) + 1), match[0]


@needs_shared_data
def test_thread_thresholds_of_logs() -> None:
    """``threadThresholds 8/8/64 | 512/8/64``: a ring's LL wants 8 bytes per thread and rank."""
    text = real("real/nccl-logs/bigscience_all_reduce_bench-32gb-n4.txt").read_text()
    printed = set(re.findall(r"threadThresholds [0-9/]+ \| (\d+)/8/64", text))
    assert printed == {str(8 * 16)}


# ------------------------------------------------------------------------------------------- traps between releases
def latency(system: NcclSystem, release: str, algorithm: str, protocol: str, op: str = "all-reduce") -> float:
    return tables(system, release).latency_us[op, algorithm, protocol]


def test_inter_node_steps_are_2n_from_2_12_to_2_22() -> None:
    """The 2 more steps over the network cost 2 x (2.7 - 1.0) us for LL with one channel's chain of 16."""
    at = {release: latency(ISSUE_1519, release, "ring", "ll") for release in ("2.18.5", "2.22.3", "2.23.4", "2.30.7")}
    assert at["2.18.5"] == at["2.22.3"] == pytest.approx(at["2.23.4"] + 3.4)
    assert at["2.23.4"] == at["2.30.7"]


def test_the_hop_of_tree_simple() -> None:
    found = [latency(ISSUE_1519, release, "tree", "simple") for release in ("2.18", "2.19", "2.22", "2.23", "2.30")]
    assert found == pytest.approx([84.0, 448.0, 448.0, 92.4, 92.4])


def test_ll_is_a_quarter_then_a_half_of_the_bus() -> None:
    found = [tables(ISSUE_1519, release).bandwidth_gbs["broadcast", "ring", "ll"] for release in ("2.20", "2.21")]
    assert found == [5.0, 10.0]


def test_one_node_copies_with_a_third_until_2_20() -> None:
    system = NcclSystem(Graphs(Graph(4, 1, 12.0, 12.0, "SYS"), Graph(3, 1, 12.0, 12.0, "SYS")), 1, 4, 80)
    found = {op: tables(system, "2.20").bandwidth_gbs[op, "ring", "ll"] for op in ("broadcast", "reduce")}
    assert found == {"broadcast": pytest.approx(4.0), "reduce": pytest.approx(3.0)}


@pytest.mark.parametrize(("release", "factor"), [("2.22.3", 0.0), ("2.23.4", 0.85), ("2.24.3", 0.75), ("2.30.7", 0.75)])
def test_pat_comes_with_2_23(release: str, factor: float) -> None:
    found = tables(SOCKETS, release).bandwidth_gbs["all-gather", "pat", "simple"]
    assert found == pytest.approx(4.8 * factor)


def test_nvls_comes_with_2_17_and_trees_of_it_with_2_18() -> None:
    h100 = named_system("dgx-h100", 2, collnet=True)
    known = {
        release: {key[1] for key, value in tables(h100, release).latency_us.items() if value} for release in releases()
    }
    assert not [release for release in ("2.5.7", "2.16.5") if "nvls" in known[release]]
    assert "nvls" in known["2.17.1"]
    assert "nvls_tree" not in known["2.17.1"]
    assert "nvls_tree" in known["2.18.5"]


def test_plateau_of_a_ring() -> None:
    """1.9 up to 2.17 by bytes per rank, 1.4 from 2.18 by bytes per channel and rank, never on one node."""
    a100 = named_system("dgx-a100", 2)
    for release, factor, small, large in (
        ("2.10.3", 1.9, 65535, 65536),
        ("2.21.5", 1.4, 16 * 16 * 64 - 1, 16 * 16 * 64),
    ):
        lat = latency(a100, release, "ring", "simple")
        speed = tables(a100, release).bandwidth_gbs["all-reduce", "ring", "simple"]
        for size, times in ((small, 1.0), (large, factor)):
            told = predict_us("all-reduce", "ring", "simple", size, a100, release)
            assert told == pytest.approx(lat * times + size / (1000 * speed)), (release, size)
    v100 = named_system("dgx1", 2)
    lat = latency(v100, "2.21.5", "ring", "simple")
    assert (predict_us("all-reduce", "ring", "simple", 1 << 16, v100, "2.21.5") or 0) > 1.9 * lat
    alone = named_system("dgx-a100")
    told = predict_us("all-reduce", "ring", "simple", 1 << 30, alone, "2.21.5")
    assert told == pytest.approx(
        latency(alone, "2.21.5", "ring", "simple")
        + (1 << 30) / (1000 * tables(alone, "2.21.5").bandwidth_gbs["all-reduce", "ring", "simple"])
    )


def test_a_release_stands_for_its_neighbours() -> None:
    told = {asked: constants(asked).release for asked in ("2.5.6", "2.6.4", "2.20", "v2.21.5-1", "2.30.7+cuda13")}
    assert told == {
        "2.5.6": "2.5.7",
        "2.6.4": "2.7.8",
        "2.20": "2.20.5",
        "v2.21.5-1": "2.21.5",
        "2.30.7+cuda13": "2.30.7",
    }
    assert [constants(release).release for release in releases()] == list(releases())


@pytest.mark.parametrize("release", ["2.4.8", "2.31", "3.0", "", "2", "two", "2.x", "²." + "1", "-1.2"])
def test_a_release_without_constants_is_refused(release: str) -> None:
    with pytest.raises(UsageError):
        constants(release)


def test_release_2_4_has_a_threshold() -> None:
    assert tree_threshold_bytes(1, 8, 6, nvlink=True) == 0
    assert tree_threshold_bytes(2, 16, 6, nvlink=True) == ALWAYS_TREE
    limit = tree_threshold_bytes(16, 128, 6, nvlink=True)
    assert limit == 90000 * (6 * 127 - 15 * 4 - 4 * 7)
    assert [algorithm_2_4("all-reduce", size, limit) for size in (limit, limit + 1)] == ["tree", "ring"]
    assert algorithm_2_4("broadcast", 8, limit) == "ring"
    with pytest.raises(UsageError):
        tree_threshold_bytes(2, 1, 1, nvlink=True)


# ----------------------------------------------------------------------------------------------------- properties
def systems() -> Iterator[NcclSystem]:
    for name in NODE_TYPES:
        for nodes in (1, 2, 3, 16):
            if name != "gb200-nvl72":
                yield named_system(name, nodes)
                yield named_system(name, nodes, collnet=True)


@pytest.mark.sampled(8, "release")
@pytest.mark.parametrize("release", releases())
def test_times_grow_with_size_and_tables_are_sane(release: str) -> None:
    """A ring's time never falls with size (a tree's may, where its correction rises by a step), and a bandwidth of 0 has a reason."""
    for system in systems():
        found = tables(system, release)
        assert all(value >= 0 for value in (*found.latency_us.values(), *found.bandwidth_gbs.values()))
        assert set(found.why) == {key for key, value in found.bandwidth_gbs.items() if not value}
        for op in OPS:
            last = 0.0
            for size in SIZES:
                time_us = predict_us(op, "ring", "simple", size, system, release)
                assert time_us is not None
                assert time_us >= last
                last = time_us


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("release", releases())
def test_the_choice_is_the_cheapest_that_is_available(release: str) -> None:
    for system in systems():
        for op in OPS:
            for size in (0, 8, 4096, 1 << 20, 1 << 30):
                found = choose(op, size, system, release)
                offered = costs(op, size, system, release)
                assert found.time_us == min(offered.values())
                assert (found.algorithm, found.protocol) in offered
                assert 1 <= found.channels_used <= max(found.channels, 1) <= 64
                assert 96 <= found.threads <= 640
                assert found.threads % 32 == 0


@given(
    op=st.sampled_from(OPS),
    algorithm=st.sampled_from(ALGORITHMS),
    protocol=st.sampled_from(PROTOCOLS),
    size=st.integers(0, 1 << 40),
    channels=st.integers(1, 64),
    name=st.sampled_from(["dgx1", "dgx-h100", "pcie"]),
    nodes=st.integers(1, 70),
    release=st.sampled_from(releases()),
)
def test_chunks_cover_the_operation(
    op: str, algorithm: str, protocol: str, size: int, channels: int, name: str, nodes: int, release: str
) -> None:
    found = chunking(op, algorithm, protocol, size, channels, named_system(name, nodes), release)
    assert found.chunk_bytes > 0
    assert found.loop_bytes == channels * found.chunks_per_loop * found.chunk_bytes
    assert found.loops * found.loop_bytes >= size > (found.loops - 1) * found.loop_bytes or size == 0 == found.loops
    assert 0 < found.slice_bytes <= found.chunk_bytes


def test_chunks_of_a_ring_and_a_small_tree() -> None:
    h100 = named_system("dgx-h100", 4)
    found = chunking("all-reduce", "ring", "simple", 1 << 30, 16, h100, "2.21.5")
    assert (found.chunk_bytes, found.slice_bytes) == (2 << 20, 1 << 20)
    assert (found.chunks_per_loop, found.steps_per_loop, found.loops) == (32, 62, 1)
    assert found.steps == 62 * 4
    large = chunking("all-reduce", "tree", "ll128", 1 << 30, 16, h100, "2.21.5").chunk_bytes
    small = chunking("all-reduce", "tree", "ll128", 1 << 16, 16, h100, "2.21.5").chunk_bytes
    assert (large, small) == (576000, 17280)
    assert cut(choose("all-reduce", 1 << 30, h100, "2.21.5"), h100).loops >= 1


# --------------------------------------------------------------------------------------------------- availability
def why(system: NcclSystem, release: str, op: str, algorithm: str, protocol: str) -> str:
    return tables(system, release).why.get((op, algorithm, protocol), "")


def test_what_is_not_available_says_why() -> None:
    h100 = named_system("dgx-h100", 2)
    assert "one GPU per node" in why(h100, "2.23.4", "all-gather", "pat", "simple")
    assert "does not reduce" in why(h100, "2.21.5", "all-reduce", "collnet_direct", "simple")
    assert "several nodes" in why(named_system("dgx-h100"), "2.21.5", "all-reduce", "nvls_tree", "simple")
    assert "has no pat" in why(h100, "2.22.3", "all-gather", "pat", "simple")
    assert "does not do broadcast" in why(h100, "2.21.5", "broadcast", "tree", "ll")
    assert "PHB" in why(ISSUE_1519, "2.21.5", "all-reduce", "ring", "ll128")
    assert "one rank" in why(NcclSystem(h100.graphs, 1, 1, 90), "2.21.5", "all-reduce", "ring", "ll")


def test_ll128_by_generation() -> None:
    turing = NcclSystem(named_system("dgx2").graphs, 1, 16, 75)
    assert why(turing, "2.21.5", "all-reduce", "ring", "ll128").endswith("capability 7.5")
    assert not why(turing, "2.27.7", "all-reduce", "ring", "ll128")
    blackwell = named_system("gb200", 2)
    assert why(blackwell, "2.24.3", "all-reduce", "ring", "ll128")
    assert not why(blackwell, "2.25.1", "all-reduce", "ring", "ll128")
    mixed = NcclSystem(named_system("dgx-h100", 2).graphs, 2, 16, 90, capability_max=100)
    assert "one generation" in why(mixed, "2.28.9", "all-reduce", "ring", "ll128")
    assert not why(mixed, "2.30.7", "all-reduce", "ring", "ll128")


def test_collnet_serves_eight_local_ranks() -> None:
    small, large = named_system("dgx-h100", 4, collnet=True), named_system("dgx2", 4, collnet=True)
    assert predict_us("all-reduce", "collnet_chain", "simple", 1 << 20, small, "2.21.5") is not None
    assert predict_us("all-reduce", "collnet_chain", "simple", 1 << 20, large, "2.21.5") is None
    assert predict_us("all-reduce", "collnet_direct", "simple", 1 << 20, small, "2.21.5") is not None


def test_fp8_puts_a_long_ring_last() -> None:
    h100 = named_system("dgx-h100", 2)
    plain = predict_us("all-reduce", "ring", "ll", 8, h100, "2.30.7")
    assert plain is not None
    assert predict_us("all-reduce", "ring", "ll", 8, h100, "2.30.7", fp8=True) == pytest.approx(1024 * plain)
    alone = named_system("dgx-h100")
    assert predict_us("all-reduce", "ring", "ll", 8, alone, "2.30.7", fp8=True) == predict_us(
        "all-reduce", "ring", "ll", 8, alone, "2.30.7"
    )


def test_pipelined_operations_share_the_latency_of_a_tree() -> None:
    h100 = named_system("dgx-h100", 2)
    one, eight = (predict_us("all-reduce", "ring", "ll", 0, h100, "2.21.5", pipelined=count) for count in (1, 8))
    assert one is not None
    assert eight == pytest.approx(8 * one)
    assert predict_us("all-reduce", "tree", "ll", 0, h100, "2.21.5", pipelined=8) == predict_us(
        "all-reduce", "tree", "ll", 0, h100, "2.21.5"
    )


# ------------------------------------------------------------------------------------------------------------ choices
def told(system: NcclSystem, release: str, op: str = "all-reduce") -> str:
    """Return runs of sizes with one choice: ``tree/ll <=64K ...``."""
    runs: list[list[object]] = []
    for choice in sweep(op, [1 << power for power in range(3, 31)], system, release):
        pair = f"{choice.algorithm}/{choice.protocol}"
        if runs and runs[-1][0] == pair:
            runs[-1][1] = choice.size_bytes
        else:
            runs.append([pair, choice.size_bytes])
    return " ".join(f"{pair}:{size}" for pair, size in runs)


# Frozen, not measured: a change here must be a change of a constant, of a rule, or of a node.
GOLDEN = {
    ("dgx1", 4, "2.7.8", "all-reduce"): "tree/ll:65536 tree/ll128:2097152 ring/ll128:67108864 ring/simple:1073741824",
    ("dgx-a100", 1, "2.10.3", "all-reduce"): "ring/ll:1048576 ring/ll128:16777216 ring/simple:1073741824",
    (
        "dgx-a100",
        16,
        "2.10.3",
        "all-reduce",
    ): "tree/ll:131072 tree/ll128:134217728 ring/ll128:536870912 ring/simple:1073741824",
    (
        "dgx-a100",
        16,
        "2.21.5",
        "all-reduce",
    ): "tree/ll:131072 tree/ll128:134217728 ring/ll128:536870912 ring/simple:1073741824",
    ("dgx-h100", 1, "2.21.5", "all-reduce"): "ring/ll:1048576 nvls/simple:1073741824",
    ("dgx-h100", 2, "2.21.5", "all-reduce"): "tree/ll:131072 tree/ll128:524288 nvls_tree/simple:1073741824",
    ("dgx-h100", 16, "2.23.4", "all-reduce"): "tree/ll:131072 tree/ll128:8388608 nvls_tree/simple:1073741824",
    ("dgx-h100", 16, "2.30.7", "all-reduce"): "tree/ll:131072 tree/ll128:16777216 nvls_tree/simple:1073741824",
    ("dgx-h100", 16, "2.30.7", "all-gather"): "ring/ll:2097152 ring/ll128:268435456 ring/simple:1073741824",
    ("dgx-h100", 16, "2.30.7", "broadcast"): "ring/ll:2097152 ring/ll128:1073741824",
    ("p4d", 4, "2.20.5", "all-reduce"): "tree/ll:65536 tree/ll128:8388608 ring/ll128:67108864 ring/simple:1073741824",
    ("gb200-nvl72", 18, "2.30.7", "all-reduce"): "nvls/simple:1073741824",
    ("pcie", 2, "2.16.5", "all-reduce"): "tree/ll:16384 ring/ll:262144 ring/simple:1073741824",
    ("pcie", 1, "2.16.5", "all-gather"): "ring/ll:131072 ring/simple:1073741824",
}


@pytest.mark.parametrize("asked", GOLDEN, ids=lambda asked: "-".join(map(str, asked)))
def test_choices_stay(asked: tuple[str, int, str, str]) -> None:
    name, nodes, release, op = asked
    assert told(named_system(name, nodes), release, op) == GOLDEN[asked]


def test_latency_ratio_of_3072_nodes() -> None:
    """The claim of the double tree: at 8 bytes and 24,576 GPUs a ring takes more than a hundred times as long."""
    many = named_system("dgx-h100", 3072)
    for release in ("2.21.5", "2.30.7"):
        ring = predict_us("all-reduce", "ring", "ll", 8, many, release)
        tree = predict_us("all-reduce", "tree", "ll", 8, many, release)
        assert ring is not None
        assert tree is not None
        assert ring / tree > 100
    assert choose("all-reduce", 8, many, "2.21.5").algorithm == "tree"


def test_the_crossover_moves_up_with_nodes() -> None:
    limits = []
    for nodes in (4, 16, 64, 256):
        system = named_system("dgx-a100", nodes)
        rings = [size for size in SIZES if choose("all-reduce", size, system, "2.21.5").algorithm == "ring"]
        limits.append(min(rings, default=1 << 40))
    assert limits == sorted(limits)
    assert limits[0] < limits[-1]


def test_boxes_by_the_rule_of_the_search() -> None:
    def shape(name: str, nodes: int, graph: str = "ring") -> tuple[int, float, float]:
        found = getattr(named_system(name, nodes).graphs, graph)
        return found.channels, found.bw_intra_gbs, found.bw_inter_gbs

    assert shape("dgx1", 1) == (6, 20, 20)
    assert shape("dgx-a100", 1) == (12, 20, 20)
    assert shape("dgx-h100", 1) == (12, 30, 30)
    assert shape("dgx-h100", 1, "nvls") == (8, 40, 60)
    assert shape("dgx-h100", 2) == (8, 45, 45)
    assert shape("dgx-a100", 4, "tree") == (8, 30, 24)
    assert named_system("gb200-nvl72", 18).ranks == 72
    assert (named_system("gb200-nvl72", 36).nodes, named_system("gb200-nvl72", 36).mnnvl) == (2, True)


def test_nvls_on_one_h100_box_reaches_what_is_measured() -> None:
    """The model of 2.28 says 476 GB/s of bus bandwidth for 8 H100, the figure that public runs reach."""
    found = tables(named_system("dgx-h100"), "2.28.9").bandwidth_gbs["all-reduce", "nvls", "simple"]
    assert found * 14 / 8 == pytest.approx(476.0)


@pytest.mark.parametrize(("name", "nodes"), [("dgx-9", 1), ("dgx1", 0), ("gb200-nvl72", 19)])
def test_no_such_box(name: str, nodes: int) -> None:
    with pytest.raises(UsageError):
        named_system(name, nodes)


def test_questions_that_cannot_be_asked() -> None:
    h100 = named_system("dgx-h100", 2)
    for op, size in (("all-to-all", 8), ("all-reduce", -1)):
        with pytest.raises(UsageError):
            choose(op, size, h100, "2.21.5")
    with pytest.raises(InfeasibleError):
        choose("all-reduce", 8, NcclSystem(Graphs(Graph(4, 0, 0, 0), Graph(1, 0, 0, 0)), 1, 8, 90), "2.21.5")
    with pytest.raises(UsageError):
        NcclSystem(h100.graphs, 3, 2, 90)
    with pytest.raises(UsageError):
        Graph(4, 1, 1.0, 1.0, "FAST", "PIX")
    alone = choose("all-reduce", 8, NcclSystem(h100.graphs, 1, 1, 90), "2.21.5")
    assert (alone.algorithm, alone.protocol, alone.time_us) == ("ring", "simple", 0.0)
