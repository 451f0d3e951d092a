"""Files around the model: graph XML, graph lines of logs, the tuner plug-in's CSV; hostile and broken ones too."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.costs.nccl import ALGORITHMS, OPS, PROTOCOLS, choose, costs, named_system, predict_us, sweep
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX, TunerRule, first_match, rules_from_choices
from ringwright.formats.settings.nccl_tuner_csv import (
    nccl_tuner_csv,
    parse_nccl_tuner_csv,
    read_nccl_tuner_csv,
    write_nccl_tuner_csv,
)
from ringwright.formats.sources.nccl_graph_xml import graphs_from_log, parse_nccl_graph_xml, read_nccl_graph_xml
from ringwright.ground.errors import InputError, UsageError
from shared_data import needs_shared_data, real

RING = (
    '<graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="12" speedinter="12" latencyinter="2.5" '
    'typeintra="SYS" typeinter="PIX" samechannels="1">{}</graph>'
)
CHANNEL = '<channel><net dev="a"/><gpu dev="0" rank="3"/><gpu dev="1f"/><net dev="a"/></channel>'


def document(body: str) -> bytes:
    return f'<graphs version="1">\n{body}\n</graphs>\n'.encode()


# ----------------------------------------------------------------------------------------------------------- graph XML
def test_a_graph_file() -> None:
    graphs = parse_nccl_graph_xml(document(RING.format(CHANNEL)))
    ring = graphs.ring
    assert (ring.channels, ring.bw_intra_gbs, ring.bw_inter_gbs, ring.latency_inter_us) == (1, 12.0, 12.0, 2.5)
    assert (ring.type_intra, ring.type_inter, ring.same_channels) == ("SYS", "PIX", True)
    assert (ring.orders, ring.nets) == (((3, 31),), ((10, 10),))
    assert graphs.tree.channels == 0
    assert list(graphs.named()) == ["ring"]


@needs_shared_data
def test_azure_ncv4() -> None:
    graphs = read_nccl_graph_xml(real("real/nccl-topo/azure-ncv4-graph.xml"))
    assert {name: (graph.pattern, graph.channels) for name, graph in graphs.named().items()} == {
        "ring": (4, 2),
        "tree": (1, 4),
        "collnet_chain": (3, 4),
    }
    assert graphs.ring.orders == ((0, 1, 2, 3), (0, 3, 2, 1))
    assert graphs.tree.orders[3] == (2, 3, 0, 1)


BROKEN = {
    "entity": b'<!DOCTYPE g [<!ENTITY a "x">]><graphs>&a;</graphs>',
    "bomb": b'<!DOCTYPE g [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><graphs version="1">&b;</graphs>',
    "external": b'<!DOCTYPE g SYSTEM "http://localhost/x.dtd"><graphs version="1"/>',
    "root": b"<system version='1'/>",
    "cut": document(RING.format(CHANNEL))[:-30],
    "empty": b"",
    "binary": b"\x00\xff\xfe" * 10,
    "no ring": document(""),
    "twice": document(RING.format("") * 2),
    "deep": b"<graphs>" + b"<a>" * 20 + b"</a>" * 20 + b"</graphs>",
    "channels": document(RING.format(CHANNEL).replace('nchannels="1"', 'nchannels="99999999"')),
    "many": document(RING.format("<channel/>" * 200)),
    "devices": document(RING.format("<channel>" + '<gpu dev="1"/>' * 5000 + "</channel>")),
    "negative": document(RING.format(CHANNEL).replace('speedintra="12"', 'speedintra="-1"')),
    "nan": document(RING.format(CHANNEL).replace('speedintra="12"', 'speedintra="nan"')),
    "path": document(RING.format(CHANNEL).replace("SYS", "FTL")),
    "pattern": document(RING.format(CHANNEL).replace('pattern="4"', 'pattern="1"')),
    "id": document(RING.format(CHANNEL).replace('id="0"', 'id="7"')),
    "device": document(RING.format('<channel><gpu dev="xyz"/></channel>')),
    "missing": document(RING.format(CHANNEL).replace(' speedinter="12"', "")),
    "large": b"<graphs>" + b" " * (16 << 20),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_graph_file_says_where(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_nccl_graph_xml(BROKEN[name], name="g.xml")
    assert caught.value.where.startswith("g.xml")


def test_the_line_of_an_error() -> None:
    with pytest.raises(InputError) as caught:
        parse_nccl_graph_xml(document("\n\n" + RING.format(CHANNEL).replace("SYS", "FTL")), name="g.xml")
    assert caught.value.where == "g.xml:4"


def test_a_missing_graph_file(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_nccl_graph_xml(tmp_path / "none.xml")


# ------------------------------------------------------------------------------------------------- graph lines of logs
PREFIX = "host-1:14492:14605 [0] NCCL INFO "


def test_graph_lines_of_recent_releases() -> None:
    lines = [
        PREFIX + "Pattern 4, crossNic 0, nChannels 8, bw 45.000000/45.000000, type NVL/PXN, sameChannels 0",
        PREFIX + " 0 : NET/0 GPU/0 GPU/1 NET/0",
        "host-1:14493:14606 [1] NCCL INFO Pattern 4, crossNic 2, nChannels 4, bw 24.000000/24.000000, type NVL/PIX, sameChannels 1",
        PREFIX + "Pattern 1, crossNic 0, nChannels 8, bw 48.000000/24.000000, type NVL/PXN, sameChannels 0",
        PREFIX + "Pattern 3, crossNic 0, nChannels 4, bw 24.000000/24.000000, type NVL/PXN, sameChannels 0",
        PREFIX + "Pattern 5, crossNic 0, nChannels 7, bw 3.000000/3.000000, type NVL/PHB, sameChannels 0",
        PREFIX + "Pattern 6, crossNic 0, nChannels 8, bw 24.000000/24.000000, type NVL/PXN, sameChannels 0",
        PREFIX + "Pattern 77, crossNic 0, nChannels 8, bw 1.0/1.0, type NVL/PXN, sameChannels 0",
        PREFIX + "Pattern 4, crossNic 0, nChannels 8, bw 4.5.6/45, type NVL/PXN, sameChannels 0",
    ]
    first, second = graphs_from_log(lines)
    assert {name: graph.channels for name, graph in first.named().items()} == {
        "ring": 8,
        "tree": 8,
        "collnet_chain": 4,
        "nvls": 7,
        "collnet_direct": 8,
    }
    assert (first.tree.bw_intra_gbs, first.tree.bw_inter_gbs, first.tree.type_inter) == (48.0, 24.0, "PXN")
    assert (second.ring.same_channels, second.ring.cross_nic, second.tree.channels) == (True, 2, 0)


@pytest.mark.parametrize(
    ("line", "speed", "inside"),
    [
        ("Pattern 4, crossNic 0, nChannels 4, speed 1.200000/1.200000, type SYS/SYS, sameChannels 0", 1.2, "SYS"),
        ("Pattern 4, crossNic 0, nChannels 2, speed 21/21, type 1/3, sameChannels 1", 21.0, "NVL"),
        ("Pattern 4, crossNic 0, nChannels 2, speed 12/12, nvlink 1, type 2, sameChannels 1", 12.0, "NVL"),
        ("Pattern 4, crossNic 0, nChannels 2, speed 12, nvlink 0", 12.0, "PXB"),
    ],
)
def test_graph_lines_of_old_releases(line: str, speed: float, inside: str) -> None:
    (graphs,) = graphs_from_log([PREFIX + line])
    assert (graphs.ring.bw_intra_gbs, graphs.ring.type_intra) == (speed, inside)


@given(st.lists(st.text(max_size=200)))
def test_any_lines_are_read(lines: list[str]) -> None:
    assert graphs_from_log(lines) == []


# ----------------------------------------------------------------------------------------------------------- tuner CSV
def test_a_sweep_becomes_rules_without_gaps() -> None:
    system = named_system("dgx-h100", 4)
    choices = [*sweep("all-reduce", [1 << power for power in range(3, 31)], system, "2.21.5")]
    rules = rules_from_choices(choices)
    assert (rules[0].min_bytes, rules[-1].max_bytes) == (0, BYTES_MAX)
    assert all(after.min_bytes == before.max_bytes + 1 for before, after in pairwise(rules))
    back = parse_nccl_tuner_csv(nccl_tuner_csv(rules))
    assert back.rules == tuple(rules)
    assert not back.warnings
    for choice in choices:
        rule = first_match(back.rules, "all-reduce", choice.size_bytes, nodes=4, ranks=32)
        assert rule is not None
        assert (rule.algorithm, rule.protocol, rule.channels) == (choice.algorithm, choice.protocol, choice.channels)
    assert first_match(back.rules, "all-reduce", 8, nodes=2, ranks=16) is None


rules_of = st.builds(
    lambda op, ends, algorithm, protocol, channels, scope: TunerRule(
        op, min(ends), max(ends), algorithm, protocol, channels, *scope
    ),
    st.sampled_from(OPS),
    st.tuples(st.integers(0, BYTES_MAX), st.integers(0, BYTES_MAX)),
    st.sampled_from(ALGORITHMS),
    st.sampled_from(PROTOCOLS),
    st.integers(1, 64),
    st.tuples(*(st.integers(-1, 5000),) * 3, st.integers(-1, 1)),
)


@given(st.lists(rules_of, min_size=1, max_size=20))
def test_round_trip_of_any_rules(rules: list[TunerRule]) -> None:
    text = nccl_tuner_csv(rules)
    assert parse_nccl_tuner_csv(text).rules == tuple(rules)
    assert all(len(line) <= 255 for line in text.decode().splitlines())


def test_the_first_available_rule_wins() -> None:
    rules = [
        TunerRule("all-reduce", 0, 100, "nvls", "simple", 8),
        TunerRule("all-reduce", 100, 100, "tree", "ll", 4),
        TunerRule("all-reduce", 100, 200, "ring", "ll", 2, pipelined=4),
    ]
    assert first_match(rules, "all-reduce", 100, nodes=1, ranks=8) is rules[0]
    assert first_match(rules, "all-reduce", 101, nodes=1, ranks=8) is None
    assert first_match(rules, "all-reduce", 101, nodes=1, ranks=8, pipelined=4) is rules[2]
    v100 = named_system("dgx1", 2)

    def available(algorithm: str, protocol: str) -> bool:
        return predict_us("all-reduce", algorithm, protocol, 100, v100, "2.21.5") is not None

    assert first_match(rules, "all-reduce", 100, nodes=2, ranks=16, available=available) is rules[1]


def test_the_plug_in_reads_unknown_words_its_own_way() -> None:
    read = parse_nccl_tuner_csv(
        b"# a comment\n\nAllGather,0,10,ring,ll,4,-1,-1\nallgather , 0 , 10 , bine , LL , -1 , 2 , 4 , 1\n", name="t"
    )
    first, second = read.rules
    assert (first.op, first.algorithm, first.pipelined, first.registered) == ("all-reduce", "ring", ANY, ANY)
    assert (second.op, second.algorithm, second.protocol, second.channels) == ("all-gather", "ring", "simple", 1)
    assert [warning.split(":")[1] for warning in read.warnings] == ["3", "4", "4", "4"]


def test_bad_lines_leave_the_good_ones() -> None:
    read = parse_nccl_tuner_csv(b"allreduce,0,10,ring,ll,4,-1,-1\nallreduce,ten,10\nallreduce,5,1,ring,ll,1,1,1\n")
    assert len(read.rules) == 1
    assert len(read.warnings) == 2


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"\xff\xfe\x00", b"allreduce,1,2\n", b"," * 5000])
def test_a_file_without_rules(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_nccl_tuner_csv(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_nccl_tuner_csv(data)
    except InputError:
        return


@pytest.mark.parametrize("channels", [-1, 0, 65])
def test_channels_are_always_written(channels: int) -> None:
    with pytest.raises(UsageError):
        nccl_tuner_csv([TunerRule("all-reduce", 0, 10, "ring", "ll", channels)])


def test_writing_does_not_overwrite(tmp_path: Path) -> None:
    rules = rules_from_choices([choose("all-reduce", 8, named_system("dgx-a100", 2), "2.21.5")])
    path = write_nccl_tuner_csv(rules, tmp_path / "tuner.conf")
    assert read_nccl_tuner_csv(path).rules == tuple(rules)
    with pytest.raises(UsageError):
        write_nccl_tuner_csv(rules, path)
    with pytest.raises(UsageError):
        write_nccl_tuner_csv(rules, tmp_path / "no" / "tuner.conf")
    write_nccl_tuner_csv(rules, path, force=True)
    with pytest.raises(InputError):
        read_nccl_tuner_csv(tmp_path / "none.conf")


@needs_shared_data
def test_the_example_of_the_plug_in() -> None:
    read = read_nccl_tuner_csv(real("real/nccl-topo/nccl_tuner_example.conf"))
    assert len(read.rules) == 9
    assert len([warning for warning in read.warnings if "channels -1" in warning]) == 4
    rule = first_match(read.rules, "all-reduce", 1 << 20, nodes=4, ranks=32)
    assert rule is not None
    assert (rule.algorithm, rule.protocol, rule.channels) == ("ring", "simple", 4)
    assert first_match(read.rules, "all-reduce", 1 << 20, nodes=2, ranks=32) is None


def test_every_choice_of_a_rule_is_one_that_is_offered() -> None:
    system = named_system("p4d", 4)
    for rule in rules_from_choices(sweep("all-reduce", [8, 1 << 20, 1 << 30], system, "2.20.5")):
        assert (rule.algorithm, rule.protocol) in costs("all-reduce", rule.min_bytes, system, "2.20.5")
