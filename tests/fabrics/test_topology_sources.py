"""Machines from files: real ones give what is known of them, hostile ones an error with a place; exports read back."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.formats.exports.astra_network import astra_network
from ringwright.formats.exports.topology_json import topology_json
from ringwright.formats.sources.topology import parse_topology, read_topology, sniff
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.topology import NIC, Topology
from shared_data import needs_shared_data, real

REPOSITORY = Path(__file__).resolve().parents[2]


def _load_fuzz() -> ModuleType:
    loader = SourceFileLoader("fuzz_topologies", str(REPOSITORY / "scripts" / "fuzz-topologies"))
    spec = importlib.util.spec_from_loader("fuzz_topologies", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_topologies"] = module
    loader.exec_module(module)
    return module


fuzz = _load_fuzz()


def rate(top: Topology, src: str, dst: str) -> float:
    """Return GB/s of the link, 0 where there is none."""
    (link,) = top.link_ids(np.array([top.find(src)]), np.array([top.find(dst)]))
    return float(top.rate[link]) / 1e9 if link >= 0 else 0.0


def check_all_reachable(top: Topology) -> None:
    src, dst = np.divmod(np.arange(top.n_ranks**2), top.n_ranks)
    starts, _ = top.routes(src, dst)
    assert ((np.diff(starts) > 0) == (src != dst)).all()


# ------------------------------------------------------------------------------------------------------ real files
NCCL_FILES = {
    "azure-ndv2-topo": (8, 1),
    "azure-ndv4-topo": (8, 8),
    "azure-ndv5-topo": (8, 8),
    "azure-ncv4-topo": (4, None),
    "aws-p4d-24xl-topo": (8, 4),
    "aws-p4de-24xl-topo": (8, 4),
    "rccl-topo_16p1h": (16, 8),
    "rccl-topo_4p3l_n4": (8, None),
    "rccl-topo_8p_90a": (8, None),
    "rccl-topo_8p_940": (8, None),
    "rccl-topo_8p_pcie": (8, None),
    "rccl-topo_8p_rome": (8, None),
    "rccl-topo_collnet_n4": (8, None),
}


@needs_shared_data
@pytest.mark.parametrize(("name", "counts"), NCCL_FILES.items())
def test_every_public_nccl_topology_is_read(name: str, counts: tuple[int, int | None]) -> None:
    top = read_topology(real(f"real/nccl-topo/{name}.xml"))
    gpus, nics = counts
    assert top.name == name
    assert top.n_ranks == gpus
    assert nics is None or int((top.kinds == NIC).sum()) == nics
    check_all_reachable(top)
    assert "rates as NCCL computes them" in top.provenance


@needs_shared_data
def test_what_is_no_topology_says_so() -> None:
    with pytest.raises(InputError, match="graph, not a topology"):
        read_topology(real("real/nccl-topo/azure-ncv4-graph.xml"))
    with pytest.raises(InputError, match="names no GPU"):
        read_topology(real("real/nccl-topo/aws-g5.48xl-topo.xml"))
    with pytest.raises(InputError, match="sketch, not a machine"):
        read_topology(real("real/taccl-inputs/sk1-ndv2-n2.json"))
    with pytest.raises(InputError, match="describes no machine"):
        read_topology(real("real/nccl-topo/nccl_tuner_example.conf"))


@needs_shared_data
def test_rates_are_those_that_nccl_computes() -> None:
    ndv5 = read_topology(real("real/nccl-topo/azure-ndv5-topo.xml"))
    assert rate(ndv5, "gpu0", "pcie0") == 48.0
    assert rate(ndv5, "cpu0", "cpu1") == 22.0
    assert "NVLinks are found at run time" in ndv5.provenance
    p4d = read_topology(real("real/nccl-topo/aws-p4d-24xl-topo.xml"))
    assert rate(p4d, "gpu0", "pcie0") == 12.0
    assert rate(p4d, "gpu0", "pcie1") == 0.0
    assert rate(p4d, "cpu0", "cpu1") == 10.0
    mi200 = read_topology(real("real/nccl-topo/rccl-topo_16p1h.xml"))
    assert rate(mi200, "gpu0", "gpu1") == 4 * 36.0
    assert rate(mi200, "cpu0", "cpu1") == 16.0


@needs_shared_data
def test_taccl_profiles_of_all_sizes_give_one_machine() -> None:
    for size in ("1KB", "32KB", "1MB"):
        top = read_topology(real(f"real/taccl-inputs/topo-ndv2-{size}.json"))
        assert rate(top, "gpu0", "gpu1") == pytest.approx(2**20 / 23e-6 / 1e9, rel=0.01)
        assert rate(top, "gpu0", "gpu2") == pytest.approx(2**20 / 46e-6 / 1e9, rel=0.03)
        assert top.latency_s[0] == pytest.approx(0.3e-6)
    dgx2 = read_topology(real("real/taccl-inputs/topo-dgx2-1MB.json"))
    assert (dgx2.n_ranks, int((dgx2.kinds == NIC).sum())) == (16, 8)
    assert rate(dgx2, "gpu0", "nvswitch") == pytest.approx(2**20 / 8e-6 / 1e9)
    pair = read_topology(real("real/taccl-inputs/topo-ndv2-1MB.json"), boxes=2)
    assert pair.n_ranks == 16
    assert rate(pair, "node1/nic0", "network") == pytest.approx(2**20 / 105e-6 / 1e9)
    check_all_reachable(pair)


@needs_shared_data
@pytest.mark.parametrize("path", ["HGX-H100-validated", "Ring_8npus", "Ring_FullyConnected_Switch"])
def test_astra_sim_networks_go_in_and_out(path: str) -> None:
    top = read_topology(real(f"real/chakra/astra_sim/{path}.yml"))
    again = parse_topology(astra_network(top).decode(), name=f"{path}.yml")
    for column in ("src", "dst", "rate", "link_class"):
        assert (getattr(top, column) == getattr(again, column)).all()
    assert again.latency_s == pytest.approx(top.latency_s)
    assert [size for _, size in again.axes] == [size for _, size in top.axes]
    check_all_reachable(top)


@needs_shared_data
def test_astra_sim_counts_binary_gigabytes() -> None:
    top = read_topology(real("real/chakra/astra_sim/Ring_8npus.yml"))
    assert (top.rate == 50 * 2**30).all()
    assert top.latency_s == pytest.approx(500e-9)
    hgx = read_topology(real("real/chakra/astra_sim/HGX-H100-validated.yml"))
    assert hgx.n_nodes == 9


@needs_shared_data
@pytest.mark.parametrize("name", ["ring8", "dgx1", "mi250x16", "ndv2x2", "torus8x8"])
def test_benchmark_graphs_go_in_and_out(name: str) -> None:
    path = real(f"bench-topologies/{name}.json")
    top = read_topology(path)
    assert top.name == name
    edges = json.loads(path.read_text())["edges"]
    assert json.loads(topology_json(top))["edges"] == edges
    check_all_reachable(top)


# ------------------------------------------------------------------------------------------------- written samples
def sample(name: str, **knobs: object) -> Topology:
    return parse_topology(fuzz.SAMPLES[name], name=name, **knobs)  # type: ignore[arg-type]


def test_nccl_dump_with_nvswitch_c2c_and_nics() -> None:
    top = sample("nccl")
    assert [top.label(node) for node in range(2)] == ["gpu0", "gpu1"]
    assert rate(top, "gpu0", "nvswitch") == pytest.approx(18 * 20.6)
    assert rate(top, "gpu0", "cpu0") == pytest.approx(44.712 * 5)
    assert rate(top, "gpu0", "pcie0") == 48.0
    two = sample("nccl", boxes=2)
    assert rate(two, "node0/mlx5_0", "network") == 50.0
    assert rate(two, "node1/eth0", "network") == 1.25
    assert two.hosts is not None
    assert two.hosts.tolist() == [0, 0, 1, 1]
    assert two.axes == (("gpu", 2), ("node", 2))
    check_all_reachable(two)


def test_rccl_links_take_the_rate_of_their_generation() -> None:
    top = sample("rccl")
    assert rate(top, "gpu0", "gpu1") == 72.0
    assert rate(top, "gpu1", "gpu0") == 96.0


def test_hosts_of_one_file_meet_at_the_network() -> None:
    text = fuzz.NCCL.replace('host_hash="0x1" numaid="1"', 'host_hash="0x2" numaid="1"')
    top = parse_topology(text, name="two")
    assert top.hosts is not None
    assert top.hosts.tolist() == [0, 1]
    assert rate(top, "eth0", "network") == 1.25
    assert rate(top, "cpu0", "cpu1") == 0.0


def test_ranks_number_the_gpus() -> None:
    swapped = fuzz.RCCL.replace('rank="0"', 'rank="9"').replace('gcn="910"', 'gcn="906"')
    assert rate(parse_topology(swapped, name="x"), "gpu1", "gpu0") == 48.0


SMI_H100 = "".join(
    ["\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\x1b[0m\n"]
    + [
        f"GPU{here}\t"
        + "\t".join(" X " if here == there else "NV18" for there in range(4))
        + f"\t{'PIX' if not here else 'SYS'}\t0-51\n"
        for here in range(4)
    ]
    + ["NIC0\tPIX\tSYS\tSYS\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"]
)


def test_nvidia_smi_matrix() -> None:
    top = sample("smi")
    assert rate(top, "gpu0", "gpu1") == 25.0
    assert rate(top, "gpu0", "gpu2") == 50.0
    assert rate(top, "gpu0", "gpu3") == 0.0
    assert rate(top, "gpu0", "pcie0") == rate(top, "mlx5_0", "pcie0") > 0
    assert rate(top, "gpu2", "bridge1") > 0
    assert rate(top, "pcie0", "bridge1") == 20.0
    check_all_reachable(top)
    switched = parse_topology(SMI_H100, name="h100.txt")
    assert rate(switched, "gpu0", "nvswitch") == 450.0
    assert rate(parse_topology(SMI_H100, name="x", nvlink_rate=50e9), "gpu0", "nvswitch") == 900.0
    check_all_reachable(parse_topology(SMI_H100, name="x", boxes=3))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("GPU0 GPU1\nGPU0 X FOO\nGPU1 FOO X\n", "'FOO' is no connection"),
        ("GPU0 GPU1\nGPU0 X\n", "a row is cut short"),
        ("GPU0 GPU1\nGPU0 X NV1\n", "the row of GPU1 is missing"),
        ("GPU0 GPU0\nGPU0 X NV1\n", "some of them twice"),
        ("hello GPU0 X", "no line of devices"),
        ("", "describes no machine"),
        ("nothing at all", "describes no machine"),
    ],
)
def test_a_damaged_matrix_names_its_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_topology(text, name="topo.txt")
    assert caught.value.where.startswith("topo.txt")


def test_custom_taccl_box() -> None:
    links = [[0, 1], [1, 0]]
    profile = {"name": "mine", "gpus_per_node": 2, "alpha": 1, "links": links, "betas": [[0, 10], [20, 0]]}
    top = parse_topology(json.dumps(profile), name="mine.json")
    assert rate(top, "gpu1", "gpu0") == pytest.approx(2**20 / 10e-6 / 1e9)
    assert rate(top, "gpu0", "gpu1") == pytest.approx(2**20 / 20e-6 / 1e9)
    assert "(assumed)" in top.provenance
    scaled = parse_topology(json.dumps(profile), name="mine.json", chunk_bytes=1024, scale=100)
    assert rate(scaled, "gpu1", "gpu0") == pytest.approx(1024 / 0.1e-6 / 1e9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("npus_count: [ 8 ]", "lacks topology, bandwidth, latency"),
        ("topology: [ Ring ]\nnpus_count: [ 8, 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]", "npus_count has another length"),
        ("topology: [ Torus ]\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]", "'Torus' is no topology"),
        ("topology: [ Ring ]\nnpus_count: [ 2.5 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]", "is no count"),
        ("topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ -1 ]\nlatency: [ 1 ]", "'-1' is no bandwidth"),
        ("topology: [ Ring\nnpus_count: [ 8 ]", "does not end on its line"),
        ("topology: [ Ring ]\ntopology: [ Ring ]\nnpus_count: [ 8 ]", "given twice"),
        ("npus_count: [ 8 ]\n{oops}", "is not understood"),
        ("topology: [ Ring ]\nnpus_count: [ 99999999 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]", "more than 1,048,576 ranks"),
    ],
)
def test_a_damaged_astra_network_names_its_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_topology(text, name="net.yml")
    assert caught.value.where.startswith("net.yml")


GOOD = {"n": 2, "edges": [[0, 1, 50, 0.5], [1, 0, 50, 0.5]]}


@pytest.mark.parametrize(
    "damage",
    [
        {"n": 0},
        {"n": True},
        {"n": 1},
        {"n": None},
        {"edges": 3},
        {"edges": [[0, 1]]},
        {"edges": [[0, 5, 1, 1]]},
        {"edges": [[0, 1, -1, 1]]},
        {"edges": [[0, 1, "x", 1]]},
        {"edges": [[0, 1, 1, 1, 7]]},
        {"edges": [[0, 1.5, 1, 1]]},
        {"edges": [[0, 1, 10**400, 1]]},
        {"kinds": ["rank"]},
        {"kinds": ["rank", "tree"]},
        {"names": ["a"]},
        {"classes": []},
        {"axes": [["x", 3]]},
        {"axes": 1},
        {"hosts": [0]},
        {"loss": [0, 2]},
        {"loss": [True, 0]},
        {"groups": [3]},
        {"groups": [{"gib_s": 1, "links": [9]}]},
        {"aggregators": []},
        {"aggregators": {"0": {}}},
        {"faults": [{}]},
        {"faults": [{"time_s": 0, "kind": "link", "target": 9, "field": "loss", "value": 0}]},
        {"reduce_gib_s": 0},
        {"message_us": {"link": -1}},
        {
            "aggregators": {
                "7": {"ops": [], "dtypes": [], "fanin_max": 1, "memory_bytes": 1, "multicast": 1, "latency_us": 0}
            }
        },
    ],
)
def test_a_damaged_graph_is_refused(damage: dict[str, object]) -> None:
    assert parse_topology(json.dumps(GOOD), name="good.json").n_links == 2
    with pytest.raises(InputError) as caught:
        parse_topology(json.dumps({**GOOD, **damage}), name="bad.json")
    assert "bad.json" in caught.value.where


HOSTILE = {
    "entities": '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><system version="1">&b;</system>',
    "external": '<!DOCTYPE a SYSTEM "secret.txt"><system/>',
    "deep": "<system>" + "<pci>" * 1000 + "</pci>" * 1000 + "</system>",
    "many": "<system>" + "<cpu/>" * 50_000 + "</system>",
    "long": f'<system version="{"1" * 100_000}"/>',
    "wide": f"<system {' '.join(f'a{i}=_{i}_' for i in range(500))}/>".replace("_", '"'),
    "empty": "<system/>",
    "other": "<html/>",
    "cut": '<system version="1"><cpu>',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        parse_topology(HOSTILE[name], name="x.xml")


def test_hostile_json_is_refused() -> None:
    for text in (
        "{" * 100_000,
        '{"edges":' + "[" * 100_000,
        '{"n": ' + "9" * 5000 + ', "edges": []}',
        '{"gpus_per_node": ' + "[" * 100_000,
    ):
        with pytest.raises(InputError):
            parse_topology(text, name="x.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_topology(tmp_path / "nothing.xml")
    with pytest.raises(InputError, match="cannot be read"):
        read_topology(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="describes no machine"):
        read_topology(binary)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        read_topology(large)


def test_knobs_of_readers() -> None:
    assert sniff("\ufeff <system/>") == "nccl-xml"
    with pytest.raises(UsageError, match="no kind of machine file"):
        sample("nccl", kind="xml")
    with pytest.raises(UsageError, match="takes no such knob"):
        sample("nccl", speed=3)
    with pytest.raises(UsageError, match="whole machine"):
        sample("astra", boxes=2)
    with pytest.raises(UsageError, match="not possible"):
        sample("nccl", boxes=0)


# --------------------------------------------------------------------------------------------------------- exports
@pytest.mark.parametrize(
    "spec", ["ring:5", "dgx-h100:2", "mi250:2", "leaf-spine:16,sharp=yes", "switch:4,backplane=1GB/s", "fat-tree:16"]
)
def test_json_out_and_in_is_the_identity_but_for_routes(spec: str) -> None:
    top = apply(
        fabric(spec), ["link rank0 loss 1% from 1ms"] if "gpu" not in fabric(spec).label(0) else ["rank 1 slow 2x"]
    )
    top = dataclasses.replace(top, loss=np.linspace(0, 0.1, top.n_links), message_s={"nic": 1.7e-6}, reduce_rate=123e9)
    top = dataclasses.replace(top, occupying=("nic",))
    again = parse_topology(topology_json(top).decode(), name="x.json")
    for field in dataclasses.fields(Topology):
        before, after = getattr(top, field.name), getattr(again, field.name)
        if field.name in ("paths", "is_symmetric"):
            continue
        if field.name == "names":
            assert list(before) == list(after)
        elif field.name == "latency_s":
            assert after == pytest.approx(before, rel=1e-15)
        elif field.name == "groups":
            assert [(group.name, group.rate, group.links.tolist()) for group in before] == [
                (group.name, group.rate, group.links.tolist()) for group in after
            ]
        elif isinstance(before, np.ndarray):
            assert (before == after).all()
            assert before.dtype == after.dtype
        else:
            assert before == after, field.name
    assert topology_json(again) == topology_json(top)


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        ("ring:8", "Ring"),
        ("torus:8x4", "Ring, Ring"),
        ("full:8", "FullyConnected"),
        ("switch:8", "Switch"),
        ("dgx-h100:4", "Switch, Switch"),
        ("mi300:4", "FullyConnected, Switch"),
        ("leaf-spine:64", "Switch, Switch"),
    ],
)
def test_fabrics_become_astra_sim_networks(spec: str, kinds: str) -> None:
    text = astra_network(fabric(spec)).decode()
    assert f"topology: [ {kinds} ]" in text
    again = parse_topology(text, name="x.yml")
    assert again.n_ranks == fabric(spec).n_ranks


def test_sharing_counts_in_astra_sim_networks() -> None:
    shared = parse_topology(astra_network(fabric("p4d:2")).decode(), name="x")
    assert rate(shared, "rank0", "switch2") == pytest.approx(6.25)
    thin = parse_topology(astra_network(fabric("leaf-spine:64,oversubscription=4")).decode(), name="x")
    assert thin.rate.min() == pytest.approx(12.5e9)
    assert rate(
        parse_topology(astra_network(fabric("dgx-h100")).decode(), name="x"), "rank0", "switch"
    ) == pytest.approx(450.0)


@pytest.mark.parametrize("spec", ["mesh:4x4", "dgx-1", "leaf-spine:7,per_leaf=3"])
def test_what_astra_sim_cannot_say_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        astra_network(fabric(spec))
    with pytest.raises(UsageError, match="no axes"):
        astra_network(dataclasses.replace(fabric("ring:4"), axes=()))


# ------------------------------------------------------------------------------------------------------------ fuzz
def test_every_sample_is_read() -> None:
    for name, text in fuzz.SAMPLES.items():
        assert fuzz.check(text, name) == "machine"


def test_damaged_files_are_read_or_refused() -> None:
    """A part of the campaign of scripts/fuzz-topologies, always the same 1,000 inputs."""
    found = {number: fuzz.run_one(2027, number) for number in range(1000)}
    failed = [
        f"scripts/fuzz-topologies --seed 2027 --only {number}\n{trace}" for number, (_, trace) in found.items() if trace
    ]
    assert not failed
    assert sum(what == "machine" for what, _ in found.values()) > 150


def test_the_campaign_repeats_itself() -> None:
    assert [fuzz.make_input(1, number) for number in range(20)] == [fuzz.make_input(1, number) for number in range(20)]
