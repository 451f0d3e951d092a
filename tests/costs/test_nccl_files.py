"""The tuner plug-in's CSV; hostile and broken ones too."""

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
)
from ringwright.ground.errors import InputError, UsageError
from shared_data import needs_shared_data, real


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


def test_a_written_file_is_read_back_and_none_is_told(tmp_path: Path) -> None:
    rules = rules_from_choices([choose("all-reduce", 8, named_system("dgx-a100", 2), "2.21.5")])
    (tmp_path / "tuner.conf").write_bytes(nccl_tuner_csv(rules))
    assert read_nccl_tuner_csv(tmp_path / "tuner.conf").rules == tuple(rules)
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
