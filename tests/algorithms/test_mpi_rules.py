"""The MPI libraries' choices: against the recorded tables at every threshold, and their files there and back."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.algorithms.libraries.mpich2 import rules as mpich
from ringwright.algorithms.libraries.mvapich import rules as mvapich
from ringwright.costs import open_mpi as ompi
from ringwright.costs.mpi_names import MPI_NAMES, OUR_NAMES, RULES_FILE_IDS
from ringwright.costs.selection import RanksRule, RuleTable, SizeRule, completed, decide, parse_test
from ringwright.formats.settings.mpich_json import parse_mpich_json, read_mpich_json, to_mpich_json
from ringwright.formats.settings.ompi_rules import parse_ompi_rules, read_ompi_rules, to_rules_json, to_rules_text
from ringwright.ground.errors import InputError, UsageError
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once

OMPI = "real/mpi-tuning/ompi-tuned-fixed-decisions.json"
MPICH = "real/mpi-tuning/mpich-mpir-generic.json"


# ------------------------------------------------------------------------- a second reading of the recorded Open MPI tree
def holds(condition: str, p: int, size: int, commutative: bool) -> bool:
    if condition == "else":
        return True
    if condition == "!ompi_op_is_commute(op)":
        return not commutative
    match = re.fullmatch(r"(communicator_size|total_dsize) (<|<=|==) (\d+)", condition)
    if match is None:
        return False  # which datatype gives the size: no matter of the choice
    known = {"communicator_size": p, "total_dsize": size}[match[1]]
    return {"<": known < int(match[3]), "<=": known <= int(match[3]), "==": known == int(match[3])}[match[2]]


def recorded(node: Any, p: int, size: int, commutative: bool) -> int | None:
    if isinstance(node, dict):
        return node["alg"]
    answer, open_chain = None, True
    for entry in node:
        if isinstance(entry, list):
            answer = recorded(entry, p, size, commutative) or answer
        elif open_chain and holds(entry["if"], p, size, commutative):
            answer = recorded(entry["then"], p, size, commutative) or answer
            open_chain = False
        if isinstance(entry, dict) and entry["if"] == "else":
            open_chain = True
    return answer


def limits(node: Any, name: str) -> Iterator[int]:
    for entry in node if isinstance(node, list) else []:
        if isinstance(entry, list):
            yield from limits(entry, name)
            continue
        match = re.fullmatch(name + r" (?:<|<=|==) (\d+)", entry["if"])
        if match:
            yield int(match[1])
        yield from limits(entry["then"], name)


def around(values: set[int], low: int) -> list[int]:
    return sorted({max(value + step, low) for value in values for step in (-1, 0, 1)} | {low, 10**9})


@needs_shared_data
def test_open_mpi_agrees_at_every_threshold() -> None:
    compared = 0
    for key, node in json.loads(real(OMPI).read_text()).items():
        name, disjoint = key.removesuffix("_disjoint").removesuffix("_intra"), key.endswith("_disjoint")
        op = OUR_NAMES[name]
        ranks = around(set(limits(node, "communicator_size")), 1)
        sizes = around(set(limits(node, "total_dsize")), 0)
        for p, size, commutative in itertools.product(ranks, sizes, (True, False)):
            expected = recorded(node, p, size, commutative)
            found, word = ompi.fixed(op, p, size, commutative, disjoint)
            assert found == expected, (key, p, size, commutative)
            assert word == ompi.names(op)[found] != "ignore"
            compared += 1
    assert compared > 10_000


def test_open_mpi_examples_of_the_documentation() -> None:
    assert ompi.fixed("all-reduce", 2, 8191) == (4, "ring")
    assert ompi.fixed("all-reduce", 64, 262144) == (6, "rabenseifner")
    assert ompi.fixed("all-reduce", 600, 0, commutative=False) == (2, "nonoverlapping")
    assert ompi.fixed("barrier", 6, 0) == (1, "linear")
    assert ompi.fixed("scan", 6, 0) == (1, "linear")
    assert ompi.fixed("broadcast", 16, 1 << 20, disjoint=True) == (5, "binary_tree")
    assert ompi.fixed("gather", 16, 1 << 20, disjoint=True) == ompi.fixed("gather", 16, 1 << 20)


def test_open_mpi_sizes_differ_between_thresholds_and_files() -> None:
    assert ompi.threshold_bytes("all-to-all", 8, 4096) == 512
    assert ompi.rules_file_bytes("all-to-all", 8, 4096) == 4096
    assert ompi.threshold_bytes("reduce-scatter", 8, 4096) == 4096
    assert ompi.threshold_bytes("reduce-scatter-block", 8, 4096) == 512
    assert ompi.threshold_bytes("barrier", 8, 4096) == ompi.rules_file_bytes("barrier", 8, 4096) == 0
    assert ompi.threshold_bytes("scatter", 8, 4096) == ompi.rules_file_bytes("scatter", 8, 4096) == 512


def test_open_mpi_select_says_who_decided() -> None:
    table = RuleTable({"all-reduce": (RanksRule(4, 8, (SizeRule(0, 99, "ring"), SizeRule(100, None, 0))),)})
    assert ompi.select("all-reduce", 8, 64, rules=table).ground == "rules file"
    assert ompi.select("all-reduce", 8, 64, rules=table).number == 4
    assert ompi.select("all-reduce", 8, 100, rules=table).ground == "built-in thresholds"  # 0 is "ignore"
    assert ompi.select("all-reduce", 9, 64, rules=table).ground == "built-in thresholds"
    assert ompi.select("all-reduce", 8, 64, rules=table, algorithm="rabenseifner").ground == "forced"
    assert ompi.select("all-reduce", 8, 64, rules=table, algorithm=0).ground == "rules file"
    unknown = RuleTable({"all-reduce": (RanksRule(0, None, (SizeRule(0, None, "of-the-future"),)),)})
    assert ompi.select("all-reduce", 8, 64, rules=unknown).ground == "built-in thresholds"
    with pytest.raises(UsageError, match="no algorithm 99"):
        ompi.select("all-reduce", 8, 64, algorithm=99)
    with pytest.raises(UsageError, match="no collective"):
        ompi.names("all-together")


def test_open_mpi_variables_of_a_decision() -> None:
    assert ompi.mca_variables("broadcast", ompi.Decision(2, "chain", "forced", fanout=2, segment_bytes=4096)) == {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_bcast_algorithm": "2",
        "coll_tuned_bcast_algorithm_segmentsize": "4096",
        "coll_tuned_bcast_algorithm_tree_fanout": "2",
        "coll_tuned_bcast_algorithm_chain_fanout": "2",
    }


# ---------------------------------------------------------------------------------------------------- Open MPI's files
CLASSIC = """rule-file-version-2
1   # collectives
3   # all-to-all
2   # communicator sizes
4   # ranks
1   # rules
0 2 0 0
64
3
# bytes alg fanout segment requests
0        0 0 0 0
512000   4 0 0 64
1536000  2 0 65536
"""


def test_classic_rules_are_read() -> None:
    table = parse_ompi_rules(CLASSIC)
    small, large = table.rules["all-to-all"]
    assert (small.ranks_min, small.ranks_max, large.ranks_min, large.ranks_max) == (4, 63, 64, None)
    assert large.rules[1] == SizeRule(512000, 1535999, 4, max_requests=64)
    assert table.find("all-to-all", 3, 0) is None
    assert table.find("all-to-all", 63, 10**9) == SizeRule(0, None, 2)
    assert table.find("all-to-all", 1000, 1536000) == SizeRule(1536000, None, 2, segment_bytes=65536)
    assert table.find("all-gather", 64, 0) is None
    assert ompi.select("all-to-all", 64, 512000, rules=table).max_requests == 64


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "ends where the number of collectives"),
        ("rule-file-version-9\n0", 1, "version 9"),
        ("1\n2\n1\n64\n1\n0 3 x 0\n", 6, "'x' is not a number"),
        ("1\n2\n1\n64\n1\n8 3 0 0\n", 6, "start at 0"),
        ("1\n2\n1\n64\n2\n0 3 0 0\n0 4 0 0\n", 7, "ascending"),
        ("1\n2\n2\n64\n1\n0 3 0 0\n64\n1\n0 3 0 0\n", 7, "ascending"),
        ("1\n99\n0\n", 2, "id 99"),
        ("2\n2\n0\n2\n0\n", 4, "given twice"),
        ("1\n2\n1\n64\n1\n0 3 0 0\n7\n", 7, "follows the last rule"),
        ("1\n2\n1\n64\n1\n0 3 0\n", 6, "the file ends"),
        ("99999999999999999999999", 1, "is not a number"),
        ("1000000 0 1", 1, "more than the file has left"),
        ("-1", 1, "is not a number"),
    ],
)
def test_bad_classic_rules_name_their_line(text: str, line: int, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        parse_ompi_rules(text, "rules.conf")
    assert caught.value.where == f"rules.conf:{line}"


DOCUMENT = """{"rule_file_version": 3, "module": "tuned", "comm_rank_distribution": "single-node",
 "collectives": {"allreduce": [
  {"comm_size_min": 64, "comm_size_max": 128, "rules": [
    {"msg_size_min": 512, "msg_size_max": 511999, "alg": 2},
    {"msg_size_min": 512000, "msg_size_max": "inf", "alg": "recursive_doubling", "reqs": 8}]},
  {"comm_rank_distribution": "any", "rules": [{"alg": "ring", "faninout": 2, "seg_size": 4096}]}]}}"""


def test_json_rules_are_read() -> None:
    table = parse_ompi_rules(DOCUMENT)
    found = table.find("all-reduce", 64, 512000, "single-node")
    assert found == SizeRule(512000, None, "recursive_doubling", max_requests=8)
    assert table.find("all-reduce", 64, 511, "single-node") is None  # the first group stands, though silent
    assert table.find("all-reduce", 64, 511, "one-per-node") == SizeRule(0, None, "ring", 2, 4096)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ('{"collectives": ', "r.json:1", "not JSON"),
        ('{"rule_file_version": 2, "collectives": {}}', "r.json: rule_file_version", "only version 3"),
        ('{"collectives": []}', "r.json: collectives", "an object"),
        ('{"collectives": {"allfetch": []}}', "r.json: collectives", "allfetch"),
        ('{"collectives": {"bcast": {}}}', "r.json: bcast", "list of objects"),
        ('{"collectives": {"bcast": [{"rules": [{}]}]}}', "r.json: bcast[0].rules[0].alg", "number or a name"),
        (
            '{"collectives": {"bcast": [{"rules": [{"alg": true}]}]}}',
            "r.json: bcast[0].rules[0].alg",
            "number or a name",
        ),
        ('{"collectives": {"bcast": [{"comm_size_min": -1}]}}', "r.json: bcast[0].comm_size_min", "0 or more"),
        ('{"collectives": {"bcast": [{"comm_size_min": 1}]}}', "r.json: bcast[0].rules", "list of objects"),
        (
            '{"collectives": {"bcast": [{"comm_rank_distribution": "x", "rules": []}]}}',
            "r.json: bcast[0]",
            "distribution",
        ),
        (
            '{"collectives": {"bcast": [{"rules": [{"alg": 1, "reqs": "x"}]}]}}',
            "r.json: bcast[0].rules[0].reqs",
            "0 or",
        ),
        ("[" * 5, "r.json:1", "is not a number"),
        ("{" + '"a":[' * 100_000, "r.json", "bad rules file"),
    ],
)
def test_bad_json_rules_name_their_entry(text: str, place: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        parse_ompi_rules(text, "r.json")
    assert caught.value.where.startswith(place)


def test_a_missing_rules_file_is_an_input_error(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_ompi_rules(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot read"):
        read_mpich_json(tmp_path / "absent")
    (tmp_path / "rules.conf").write_text(CLASSIC)
    assert read_ompi_rules(tmp_path / "rules.conf") == parse_ompi_rules(CLASSIC)


def test_what_is_too_large_or_no_text_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "rules"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        read_ompi_rules(path)
    path.write_bytes(b"0 " * (9 << 20))
    with pytest.raises(InputError, match="larger than 16 MiB"):
        read_mpich_json(path)


NUMBERS = st.lists(
    st.one_of(st.integers(0, 20), st.integers()).map(str) | st.sampled_from(["#", "\n", "rule-file-version-2", "x"]),
    max_size=60,
)
WORDS = """collectives allreduce rules alg comm_size_min msg_size_max rule_file_version comm_rank_distribution algorithm=X
comm_size<8 comm_size=any k=2 composition=Y""".split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["inf", "any", "ring", "single-node"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(NUMBERS.map(" ".join) | st.text(max_size=60) | JSON.map(json.dumps))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    for parse in (parse_ompi_rules, parse_mpich_json):
        with contextlib.suppress(InputError):
            parse(text)


def rising(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 2**40), max_size=most, unique=True).map(lambda found: [0, *sorted(found)])


@st.composite
def tables(draw: st.DrawFn) -> RuleTable:
    """Tables without gaps, which every version of the file can carry."""
    rules = {}
    for op in draw(st.lists(st.sampled_from(sorted(RULES_FILE_IDS)), unique=True, max_size=4)):
        groups = []
        ranks = draw(rising(3))
        for low, high in zip(ranks, [*(rank - 1 for rank in ranks[1:]), None], strict=True):
            sizes = draw(rising(4))
            ends = [*(size - 1 for size in sizes[1:]), None]
            knobs = [draw(st.tuples(*[st.integers(0, 9)] * 4)) for _ in sizes]
            rows = tuple(SizeRule(a, b, *k) for a, b, k in zip(sizes, ends, knobs, strict=True))
            groups.append(RanksRule(low, high, rows))
        rules[op] = tuple(groups)
    return RuleTable(rules)


@given(tables())
def test_rules_files_there_and_back(table: RuleTable) -> None:
    assert parse_ompi_rules(to_rules_text(table).decode()) == table
    assert parse_ompi_rules(to_rules_json(table).decode()) == table


def test_built_in_thresholds_can_be_written_as_rules() -> None:
    for commutative, disjoint in itertools.product((True, False), repeat=2):
        table = ompi.fixed_table(commutative, disjoint)
        assert parse_ompi_rules(to_rules_text(table, version=1).decode()) == table
        assert parse_ompi_rules(to_rules_json(table).decode()) == table


@pytest.mark.parametrize(
    "group",
    [
        RanksRule(0, 7, (SizeRule(0, None, 1),)),
        RanksRule(0, None, (SizeRule(0, None, 1),), "one-per-node"),
        RanksRule(0, None, (SizeRule(0, 9, 1), SizeRule(20, None, 1))),
        RanksRule(0, None, (SizeRule(1, None, 1),)),
        RanksRule(0, None, ()),
        RanksRule(0, None, (SizeRule(0, None, "ring"),)),
    ],
)
def test_classic_text_refuses_what_it_cannot_say(group: RanksRule) -> None:
    table = RuleTable({"broadcast": (group,)})
    with pytest.raises(UsageError, match="broadcast"):
        to_rules_text(table)
    assert parse_ompi_rules(to_rules_json(table).decode()) == table


def test_old_classic_text_has_no_requests() -> None:
    table = RuleTable({"broadcast": (RanksRule(0, None, (SizeRule(0, None, 1, max_requests=3),)),)})
    with pytest.raises(UsageError, match="max_requests"):
        to_rules_text(table, version=1)
    with pytest.raises(UsageError, match="version"):
        to_rules_text(table, version=3)


# --------------------------------------------------------------------------------------------------------------- MPICH
GRID_RANKS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 32, 48, 64, 1000, 1024]
GRID_BYTES = [
    0,
    1,
    7,
    8,
    9,
    255,
    256,
    257,
    2047,
    2048,
    2049,
    12288,
    12289,
    32768,
    32769,
    81919,
    81920,
    524287,
    524288,
    524289,
    1 << 24,
]


@pytest.mark.sampled(2, "*")
@needs_shared_data
@pytest.mark.parametrize("op", sorted(MPI_NAMES))
def test_mpich_agrees_on_a_grid(op: str) -> None:
    recorded_tree = read_mpich_json(real(MPICH))
    flags = list(itertools.product((True, False), repeat=5))
    for p, size in itertools.product(GRID_RANKS, GRID_BYTES):
        for column in {size, size * p}:
            for commutative, builtin, hierarchical, odd, inter in flags:
                more = {
                    "hierarchical": hierarchical,
                    "regular": odd,
                    "consecutive": odd,
                    "in_place": odd,
                    "inter": inter,
                }
                counts = (column // 4,) if inter else (column // 4, 10**6)
                for count in counts:
                    known = mpich.facts(op, p, column, count, commutative, builtin, **more)
                    assert mpich.choose(op, p, column, count, commutative, builtin, **more) == decide(
                        recorded_tree, known
                    )


@needs_shared_data
@pytest.mark.parametrize("name", ["mpich-mpir-generic", "mpich-ch4-generic", "mpich-ch4-posix_generic"])
def test_mpich_files_there_and_back(name: str) -> None:
    path = real(f"real/mpi-tuning/{name}.json")
    tree = read_mpich_json(path)
    written = to_mpich_json(tree)
    assert json.loads(written) == json.loads(path.read_text())
    assert [*json.loads(written)] == [*json.loads(path.read_text())]  # order is meaning
    assert parse_mpich_json(written.decode()) == tree


def test_mpich_own_rules_there_and_back() -> None:
    tree = mpich.selection()
    assert parse_mpich_json(to_mpich_json(tree).decode()) == tree


def test_mpich_choices() -> None:
    assert mpich.short_name(mpich.choose("all-reduce", 4, 2048, 512).name) == "reduce_scatter_allgather"
    assert mpich.short_name(mpich.choose("all-reduce", 4, 2048, 512, paper=True).name) == "recursive_doubling"
    assert mpich.short_name(mpich.choose("all-reduce", 4, 2052, 513, paper=True).name) == "reduce_scatter_allgather"
    assert mpich.short_name(mpich.choose("all-reduce", 4, 1 << 20, 3).name) == "recursive_doubling"
    barrier = mpich.choose("barrier", 4, 0, 0)
    assert barrier.knobs == (("k", "2"),)
    assert mpich.cvar("barrier", barrier) == {"MPIR_CVAR_BARRIER_INTRA_ALGORITHM": "k_dissemination"}
    assert mpich.cvar("all-reduce", mpich.forced("all-reduce", "ring")) == {
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"
    }
    assert (
        mpich.choose("all-reduce", 4, 0, 0, algorithm="MPIR_Allreduce_intra_ring").name == "MPIR_Allreduce_intra_ring"
    )
    tree = parse_mpich_json(
        '{"collective=allreduce": {"comm_size<5": {"algorithm=MPIR_Allreduce_intra_tree": {"k=3": {}}}}}'
    )
    assert mpich.choose("all-reduce", 4, 1 << 20, 1 << 18, rules=tree).knobs == (("k", "3"),)
    assert (
        mpich.short_name(mpich.choose("all-reduce", 5, 1 << 20, 1 << 18, rules=tree).name) == "reduce_scatter_allgather"
    )
    with pytest.raises(UsageError, match="no algorithm"):
        mpich.choose("all-reduce", 4, 0, 0, algorithm="magic")
    with pytest.raises(UsageError, match="no collective"):
        mpich.names("all-together")


@pytest.mark.parametrize("op", sorted(MPI_NAMES))
def test_mpich_rules_never_end_nowhere(op: str) -> None:
    for p, size in itertools.product((1, 2, 7, 8, 9), (0, 1, 300, 1 << 20)):
        chosen = mpich.choose(op, p, size, size // 4)
        assert mpich.short_name(chosen.name) in mpich.names(op)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[", "not JSON"),
        ("[]", "an object"),
        ("{}", "an object"),
        ('{"comm_size~8": {}}', "is not a test"),
        ('{"comm_size<many": {}}', "compares with a word"),
        ('{"algorithm=": {}}', "NAME"),
        ('{"algorithm=X": 3}', "NAME"),
        ('{"algorithm=X": {}, "comm_size<8": {}}', "beside other keys"),
        ('{"comm_size=any": {"algorithm=X": {}}, "comm_size=any": {"algorithm=Y": {}}}', "twice"),
        ('{"comm_size=any":' * 60 + "0" + "}" * 60, "too deeply"),
        ('{"comm_size=any":' * 100_000, "bad selection file"),
    ],
)
def test_bad_selection_files(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        parse_mpich_json(text)


def test_a_test_reads_as_it_is_written() -> None:
    for text in (
        "comm_size<8",
        "avg_msg_size<=0",
        "comm_size=pow2",
        "count<pow2",
        "is_commutative=no",
        "comm_size=any",
    ):
        assert str(parse_test(text)) == text
    assert parse_test("comm_size=node_comm_size").holds({"comm_size": 4, "node_comm_size": 4})
    assert not parse_test("comm_size=pow2").holds({"comm_size": 12})
    assert parse_test("count<=pow2").holds({"comm_size": 12, "count": 8})
    with pytest.raises(UsageError, match="not known"):
        parse_test("comm_size<8").holds({})


def test_falling_through_is_spelled_out() -> None:
    tree = parse_mpich_json(
        '{"a=yes": {"b=yes": {"algorithm=ab": {}}}, "c=yes": {"algorithm=c": {}}, "c=any": {"algorithm=rest": {}}}'
    )
    names = {}
    for a, b, c in itertools.product((True, False), repeat=3):
        choice = decide(completed(tree), {"a": a, "b": b, "c": c})
        assert choice is not None
        names[a, b, c] = choice.name
    assert names[True, True, False] == "ab"
    assert names[True, False, True] == names[False, True, True] == "c"
    assert names[True, False, False] == "rest"
    assert decide(tree, {"a": True, "b": False, "c": True}) is None


# ------------------------------------------------------------------------------------------------------------- MVAPICH
def test_leaders_grow_with_size_up_to_the_smallest_node() -> None:
    leaders = [mvapich.two_level("all-reduce", [28] * 64, size).leaders for size in (8, 2048, 2049, 1 << 16, 1 << 20)]
    assert leaders == sorted(leaders)
    assert (leaders[0], leaders[-1]) == (1, 16)
    assert mvapich.two_level("all-reduce", [28, 3, 28], 1 << 20).leaders == 3
    assert mvapich.two_level("all-reduce", [2, 2], 1 << 20, leaders=5).leaders == 5
    assert mvapich.two_level("all-reduce", [4], 1 << 20).ground == "assumed thresholds"
    assert mvapich.staging(8192).direct
    assert not mvapich.staging(8193).direct


@pytest.mark.parametrize(
    ("op", "nodes", "leaders"),
    [("all-reduce", [], None), ("all-reduce", [2, 0], None), ("scan", [2], None), ("all-reduce", [2], 0)],
)
def test_two_level_refuses(op: str, nodes: list[int], leaders: int | None) -> None:
    with pytest.raises(UsageError):
        mvapich.two_level(op, nodes, 8, leaders=leaders)
