"""The rules of RCCL's and NCCLX's tuners: written, read back, and asked as the library asks them; hostile files too."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringwright.cli import main
from ringwright.costs.nccl import ALGORITHMS, OPS, PROTOCOLS
from ringwright.costs.nccl.per_rank import EVERY, PerRankRule, WholeRange, aligned, per_rank_rules
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX, TunerRule, first_match
from ringwright.formats.settings.nccl_tuner_csv import read_nccl_tuner_csv
from ringwright.formats.settings.rccl_tuner_csv import parse_rccl_tuner_csv, rccl_tuner_csv, read_rccl_tuner_csv
from ringwright.formats.settings.torchcomms_tuner import parse_torchcomms_tuner, read_torchcomms_tuner, torchcomms_tuner
from ringwright.ground.errors import InputError, UsageError

pytestmark = pytest.mark.once

choices = st.tuples(st.sampled_from(ALGORITHMS), st.sampled_from(PROTOCOLS), st.sampled_from([ANY, 1, 16, 64]))
tuner_rules = st.builds(
    lambda op, ends, choice, asked: TunerRule(op, min(ends), max(ends), *choice, *asked),
    st.sampled_from(OPS),
    st.tuples(st.integers(0, BYTES_MAX), st.integers(0, BYTES_MAX)),
    choices,
    st.tuples(*(st.integers(-1, 5000),) * 3, st.integers(-1, 1)),
)
ends = st.one_of(st.none(), st.integers(0, 1 << 50))
ranges = st.builds(lambda low, high: WholeRange(*_sorted(low, high)), ends, ends)
per_rank = st.builds(
    lambda op, choice, sizes, nodes, local, chunk: PerRankRule(op, *choice[:2], sizes, nodes, local, choice[2], chunk),
    st.sampled_from(OPS),
    choices,
    ranges,
    ranges,
    ranges,
    st.sampled_from([0, 524288]),
)


def total_rules(rules: Iterable[PerRankRule], nodes: int, ranks: int) -> list[TunerRule]:
    """Return the rules that hold on a communicator of so many nodes and ranks, by all bytes; UsageError for uneven nodes."""
    if nodes < 1 or ranks % nodes:
        raise UsageError(f"{ranks} ranks on {nodes} nodes", remedy="the same number of ranks on each node")
    made = []
    for rule in rules:
        if not (rule.nodes.matches(nodes) and rule.local_ranks.matches(ranks // nodes)):
            continue
        low, high = rule.bytes_per_rank.low or 0, rule.bytes_per_rank.high
        most = BYTES_MAX if high is None else min((high + 1) * ranks - 1, BYTES_MAX)
        if most >= 0 and low * ranks <= most:
            choice = rule.algorithm, rule.protocol, rule.channels
            made.append(TunerRule(rule.op, max(low, 0) * ranks, most, *choice, nodes, ranks))
    return made


def _sorted(low: int | None, high: int | None) -> tuple[int | None, int | None]:
    return (low, high) if low is None or high is None or low <= high else (high, low)


# --------------------------------------------------------------------------------------------------------------- RCCL
@given(st.lists(tuner_rules, min_size=1, max_size=20))
@settings(max_examples=40)
def test_rules_of_rccl_come_back(rules: list[TunerRule]) -> None:
    read = parse_rccl_tuner_csv(rccl_tuner_csv(rules))
    assert read.rules == tuple(rules)
    assert not read.warnings


def test_rccl_reads_what_ncclls_example_reads_otherwise() -> None:
    read = parse_rccl_tuner_csv(
        b"\t# a comment\r\nAllGather,0,10,ring,ll,4,-1,-1\nallgather , 0,,10 , ring , ll , -1 , 2 , 4,1,0,7,x\r\n"
        b"allreduce,0,10,ring,ll,4, ,-1\nallreduce,0,10,ring,ll,0,1,1\nallreduce,ten,10,ring,ll,1,1,1\nallreduce,0,10\n",
        name="t",
    )
    assert read.rules == (TunerRule("all-gather", 0, 10, "ring", "ll", ANY, 2, 4, 1, 0),)
    assert [warning.split(":")[1] for warning in read.warnings] == ["2", "4", "5", "6", "7"]


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"\0allreduce,0,1,ring,ll,1,1,1\n", b"," * 5000, b"\xff\xfe\n"])
def test_a_file_of_rccl_without_rules(data: bytes) -> None:
    with pytest.raises(InputError, match="no tuner rule"):
        parse_rccl_tuner_csv(data)


@given(st.binary(max_size=300))
@settings(max_examples=40)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (parse_rccl_tuner_csv, lambda data: parse_torchcomms_tuner(data.decode("utf-8", "replace"))):
        try:
            read(data)
        except InputError:
            continue


def test_a_zero_byte_ends_the_file_as_rccl_reads_it() -> None:
    line = b"allreduce,0,1,ring,ll,1,1,1\n"
    read = parse_rccl_tuner_csv(line + b"\0" + line)
    assert len(read.rules) == 1
    assert "zero byte" in read.warnings[0]


@pytest.mark.parametrize("channels", [0, -2])
def test_channels_that_rccl_would_pass_over_are_refused(channels: int) -> None:
    with pytest.raises(UsageError, match="channels"):
        rccl_tuner_csv([TunerRule("all-reduce", 0, 10, "ring", "ll", channels)])


# -------------------------------------------------------------------------------------------------------------- NCCLX
@given(st.lists(per_rank, max_size=12))
@settings(max_examples=40)
def test_rules_of_ncclx_come_back(rules: list[PerRankRule]) -> None:
    assert parse_torchcomms_tuner(torchcomms_tuner(rules).decode()) == tuple(rules)


def test_the_intervals_that_ncclx_knows() -> None:
    said = ["*", 5, "7", " [2,9] ", "(2,9)", "(2,9]", "[2,9)", "(1,)", "[2,)", "(,4]", "(,4)"]
    want = [(None, None), (5, 5), (7, 7), (2, 9), (3, 8), (3, 9), (2, 8), (2, None), (2, None), (None, 4), (None, 3)]
    rule = {
        "filter": {"collective": "allreduce", "numPipeOps": -1},
        "config": {"algorithm": "ring", "protocol": "ll128"},
    }
    rules = [{**rule, "filter": {**rule["filter"], "bytesPerRank": each}} for each in said]
    read = parse_torchcomms_tuner(json.dumps({"rules": rules}))
    assert [(each.bytes_per_rank.low, each.bytes_per_rank.high) for each in read] == want
    assert {each.nodes for each in read} == {EVERY}


def written(asked: str = "", taken: str = "") -> str:
    """Return a file of one rule with more fields in its filter and its config."""
    config = '"config": {"algorithm": "ring", "protocol": "ll"' + taken + "}"
    return '{"rules": [{"filter": {"collective": "allreduce"' + asked + "}, " + config + "}]}"


BROKEN = {
    "no JSON": "{",
    "a list": "[]",
    "no rules": '{"rules": {}}',
    "deep": "[" * 100_000,
    "digits": '{"rules": [' + "9" * 5000 + "]}",
    "flat": '{"rules": [{"collective": "allreduce"}]}',
    "a word": written().replace("allreduce", "AllReduce"),
    "no algorithm": written().replace('"algorithm": "ring", ', ""),
    "a list of channels": written(taken=', "channels": [4]'),
    "no channel": written(taken=', "channels": 0'),
    "a negative chunk": written(taken=', "chunkSize": -1'),
    "turned round": written(', "nNodes": "(2,1]"'),
    "an open bracket": written(', "nNodes": "[2,4"'),
    "true": written(', "nNodes": true'),
    "huge": written(', "nNodes": ' + "9" * 30),
    "of earlier builds": written(', "numPipeOps": 2'),
    "of no build": written(', "nRanks": 2'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_of_ncclx_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="bad tuner file") as caught:
        parse_torchcomms_tuner(BROKEN[name], "t.json")
    assert caught.value.where.startswith("t.json")


def test_a_rule_holds_per_rank_where_it_holds_for_all_bytes() -> None:
    draw = random.Random(3)
    cuts = sorted(draw.sample(range(1, 100_000), 9))
    for ranks, nodes in ((16, 2), (24, 3), (7, 1)):
        rules = [
            TunerRule("all-reduce", low, high - 1, draw.choice(ALGORITHMS), "ll", at + 1, nodes, ranks)
            for at, (low, high) in enumerate(pairwise([0, *cuts, BYTES_MAX + 1]))
        ]
        moved = aligned(rules)
        made = per_rank_rules(moved)
        assert total_rules(made, nodes, ranks) == moved
        for _ in range(400):
            size = draw.choice([draw.randrange(110_000), draw.choice(cuts) + draw.randrange(-ranks, ranks)])
            size = max(size, 0)
            rule = first_match(moved, "all-reduce", size, nodes=nodes, ranks=ranks)
            held = next(each for each in made if each.matches("all-reduce", size, nodes, ranks))
            assert rule is not None
            assert held.channels == rule.channels
            before = first_match(rules, "all-reduce", size, nodes=nodes, ranks=ranks)
            assert before is not None
            assert before.channels == rule.channels or any(0 <= size - cut < ranks for cut in cuts)
            if size % ranks == 0:
                assert before.channels == rule.channels  # as of every all-gather and reduce-scatter
        assert not any(each.matches("all-reduce", 5, nodes + 1, (nodes + 1) * (ranks // nodes)) for each in made)
        assert not any(each.matches("all-reduce", 5, nodes, 2 * ranks) for each in made)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"ranks": 4}, "holds for -1 nodes"),
        ({}, "holds for -1 nodes and -1 ranks"),
        ({"nodes": 2}, "holds for 2 nodes"),
        ({"nodes": 3, "ranks": 4}, "4 ranks on 3 nodes"),
        ({"nodes": 1, "ranks": 7}, "within the bytes of a rank"),
        ({"nodes": 1, "ranks": 4, "pipelined": 2}, "group of calls"),
        ({"nodes": 1, "ranks": 4, "registered": 1}, "group of calls"),
    ],
)
def test_a_rule_that_cannot_be_said_per_rank_is_refused(asked: dict[str, int], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        per_rank_rules([TunerRule("all-reduce", 0, 15, "ring", "ll", 4, **asked)])


def test_every_size_of_every_communicator_is_a_rule_without_conditions() -> None:
    (rule,) = per_rank_rules([TunerRule("broadcast", 0, BYTES_MAX, "ring", "simple", ANY)])
    assert rule == PerRankRule("broadcast", "ring", "simple")
    assert b'"filter": {"collective": "broadcast"}' in torchcomms_tuner([rule])
    with pytest.raises(UsageError, match="5 ranks on 2 nodes"):
        total_rules([rule], 2, 5)


def test_export_offers_all_three_and_they_say_the_same(tmp_path: Path) -> None:
    common = ["export", "all-gather", "--fabric", "dgx-h100:2", "--algorithm", "nccl-2-4@2.27"]
    for kind in ("nccl-tuner-csv", "rccl-tuner-csv", "torchcomms-tuner-json"):
        assert main([*common, "--to", kind, "-o", str(tmp_path / kind)]) == 0
    rules = read_nccl_tuner_csv(tmp_path / "nccl-tuner-csv").rules
    assert read_rccl_tuner_csv(tmp_path / "rccl-tuner-csv").rules == rules
    assert tuple(total_rules(read_torchcomms_tuner(tmp_path / "torchcomms-tuner-json"), 2, 16)) == rules
