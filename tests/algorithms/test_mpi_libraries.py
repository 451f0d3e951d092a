"""The MPI libraries as algorithms: every entry of their menus is right, and they run what their rules say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.test_blocks import assert_right
from ringwright.algorithms.blocks.binomial import binomial
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.blocks.recursive_doubling import recursive_doubling
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.blocks.two_level import two_level
from ringwright.algorithms.libraries.mpich2 import MENU as MPICH_MENU
from ringwright.algorithms.libraries.mpich2 import mpich2
from ringwright.algorithms.libraries.mpich2 import rules as mpich_rules
from ringwright.algorithms.libraries.mvapich import mvapich
from ringwright.algorithms.libraries.open_mpi import OPS, mpi_op, open_mpi
from ringwright.algorithms.libraries.open_mpi.menu import MENU
from ringwright.costs import open_mpi as ompi_rules
from ringwright.costs.selection import RanksRule, RuleTable, SizeRule
from ringwright.engines import events
from ringwright.engines import machine as machines
from ringwright.engines.choose import simulate
from ringwright.engines.flat import flatten
from ringwright.fabrics import fabric
from ringwright.fabrics.full import full
from ringwright.fabrics.switch import switch
from ringwright.formats.settings.mpich_json import parse_mpich_json
from ringwright.ground.errors import UsageError
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology
from ringwright.model.validity import check

pytestmark = pytest.mark.once

RANKS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17]  # powers of two and their neighbours, even and odd
SIZED = ("all-gather", "reduce-scatter", "gather", "scatter")


def machine(hosts: Sequence[int]) -> Topology:
    """Ranks on hosts; what the libraries read of a machine is no more than that."""
    p = len(hosts)
    pairs = np.array([(a, b) for a in range(p) for b in range(p) if a != b], np.int32).reshape(-1, 2)
    links = len(pairs)
    return Topology(
        "test",
        p,
        np.zeros(p, np.uint8),
        pairs[:, 0],
        pairs[:, 1],
        np.full(links, 1e9),
        np.full(links, 1e-6),
        np.zeros(links, np.uint8),
        ("link",),
        hosts=np.array(hosts),
    )


def collective(op: str, p: int, count: int, **more: Any) -> Collective:
    """Regular collectives have blocks of ``count`` elements where blocks belong to ranks."""
    unit = p if op in (*SIZED, "all-to-all") else 1
    return Collective(op, range(p), 0 if op == "barrier" else 4 * count * unit, **more)


def with_counts(op: str, p: int) -> Collective:
    counts = [4 * ((7 * rank) % 5) for rank in range(p)]
    if op == "all-to-all":
        rows = tuple(tuple(4 * ((a + 3 * b) % 4) for b in range(p)) for a in range(p))
        return Collective(op, range(p), max(sum(row) for row in rows), counts=rows)
    return Collective(op, range(p), sum(counts), counts=tuple(counts))


# ------------------------------------------------------------------------------------------------------------- Open MPI
def test_the_menu_has_every_algorithm() -> None:
    assert set(MENU) == set(ompi_rules.collectives())
    for op, makers in MENU.items():
        assert len(makers) == len(ompi_rules.names(op)) - 1, op


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize("op", OPS)
def test_every_forced_algorithm_is_right(op: str) -> None:
    for p in RANKS:
        for case in (collective(op, p, count) for count in ((0, 7, p + 1) if p <= 9 else (p + 1,))):
            for number, name in enumerate(ompi_rules.names(mpi_op(case))):
                if number and (name != "two_proc" or p == 2):
                    program = open_mpi(case, algorithm=number, segment_bytes=16)
                    assert_right(program, data=p <= 9)
                    assert program.name == "open-mpi"


@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"])
def test_forms_with_counts_are_right(op: str) -> None:
    for p in (1, 2, 3, 4, 5, 8, 12):
        given = with_counts(op, p)
        assert_right(open_mpi(given))
        assert_right(mpich2(given))
        if op in ("gather", "scatter"):
            continue
        for number, name in enumerate(ompi_rules.names(mpi_op(given))):
            if number and (name != "two_proc" or p == 2):
                assert_right(open_mpi(given, algorithm=name))


@pytest.mark.parametrize("op", OPS)
def test_open_mpi_runs_what_its_thresholds_say(op: str) -> None:
    for p in (2, 3, 4, 8, 12, 16, 33, 64, 128):
        for count in (1, 64, 1000, 1 << 14, 1 << 18):
            given = collective(op, p, count)
            name = mpi_op(given)
            wanted = ompi_rules.fixed(name, p, ompi_rules.threshold_bytes(name, p, given.size_bytes))
            program = open_mpi(given)
            if program.knobs["ground"] == "built-in thresholds":
                assert (program.knobs["number"], program.knobs["algorithm"]) == wanted
            else:
                assert wanted[1] in str(program.knobs["ground"])


def test_open_mpi_falls_back_as_the_library_does() -> None:
    def ran(given: Collective, name: str, **knobs: Any) -> object:
        return open_mpi(given, algorithm=name, **knobs).knobs["algorithm"]

    assert ran(collective("all-reduce", 8, 7), "ring") == "recursive_doubling"
    assert ran(collective("all-reduce", 8, 8), "ring") == "ring"
    assert ran(collective("all-reduce", 8, 7), "rabenseifner") == "basic_linear"
    assert ran(collective("all-reduce", 8, 8, commutative=False), "rabenseifner") == "basic_linear"
    assert ran(collective("reduce", 12, 7), "rabenseifner") == "linear"
    assert ran(collective("all-gather", 6, 4), "recursive_doubling") == "bruck-k-fanout"
    assert ran(collective("all-gather", 7, 4), "neighbor") == "ring"
    assert ran(with_counts("all-gather", 7), "neighbor") == "ring"
    assert ran(collective("broadcast", 8, 7), "scatter_allgather") == "binomial"
    with pytest.raises(UsageError, match="two_proc is for 2 ranks, not 3"):
        ran(collective("all-gather", 3, 4), "two_proc")
    with pytest.raises(UsageError, match="does no send-recv"):
        open_mpi(Collective("send-recv", range(3), 4))


def test_open_mpi_follows_rules_and_placement() -> None:
    table = RuleTable({"broadcast": (RanksRule(0, None, (SizeRule(0, None, "chain", 2, 64),), "single-node"),)})
    given = collective("broadcast", 6, 64)
    program = open_mpi(given, machine([0] * 6), rules=table)
    assert (program.knobs["algorithm"], program.knobs["fanout"], program.knobs["segments"]) == ("chain", 2, 4)
    assert open_mpi(given, machine([0, 0, 0, 1, 1, 1]), rules=table).knobs["ground"] == "built-in thresholds"
    assert open_mpi(given, machine(range(6))).knobs["algorithm"] == "basic_linear"  # disjoint: below 1 MiB
    assert open_mpi(given, machine(range(6)), disjoint=False).knobs["algorithm"] == "binary_tree"
    assert open_mpi(given, algorithm="chain", fanout=3).knobs["fanout"] == 3
    assert open_mpi(collective("all-to-all", 9, 4), algorithm="linear_sync", max_requests=2).cost.messages == 4


@pytest.mark.parametrize("op", ["all-reduce", "reduce", "reduce-scatter"])
def test_the_default_choice_keeps_the_order(op: str) -> None:
    for p in (2, 3, 4, 6, 8, 9, 16, 17):
        for count in (1, 100, 1 << 16):
            given = collective(op, p, count, commutative=False)
            assert not check(open_mpi(given))
            assert not check(mpich2(given))


# --------------------------------------------------------------------------------------------------------------- MPICH
@pytest.mark.sampled(10, "*")
@pytest.mark.parametrize(("op", "short"), [key for key in MPICH_MENU if not key[0].endswith("-v")])
def test_every_mpich_algorithm_is_right(op: str, short: str) -> None:
    for p in RANKS:
        for count in (0, 1, p + 1) if p <= 9 else (p + 1,):
            hosts = machine([rank // 3 for rank in range(p)])
            program = mpich2(collective(op, p, count), hosts, algorithm=short, radix=3, fanout=3, segment_bytes=8)
            assert_right(program, data=p <= 9)


def test_mpich_runs_what_its_tests_say() -> None:
    for op in OPS:
        for p in (2, 3, 7, 8, 9, 16):
            for count in (1, 64, 1000, 1 << 14, 1 << 18):
                given = collective(op, p, count)
                name = mpi_op(given)
                wanted = mpich_rules.choose(name, p, given.size_bytes, given.size_bytes // 4)
                assert mpich2(given).knobs["algorithm"] == mpich_rules.short_name(wanted.name)


def test_mpich_on_hosts_and_with_other_rules() -> None:
    hosts = machine([0, 0, 0, 1, 1, 1])
    assert mpich2(collective("barrier", 6, 0), hosts).knobs["algorithm"] == "smp"
    assert mpich2(collective("barrier", 6, 0)).knobs["algorithm"] == "k_dissemination"
    assert mpich2(collective("all-reduce", 8, 500)).knobs["algorithm"] == "reduce_scatter_allgather"
    assert mpich2(collective("all-reduce", 8, 500), paper=True).knobs["algorithm"] == "recursive_doubling"
    assert mpich2(collective("all-reduce", 8, 500), builtin=False).knobs["algorithm"] == "recursive_doubling"
    tree = parse_mpich_json(
        '{"collective=allreduce": {"algorithm=MPIR_Allreduce_intra_recursive_multiplying": {"k=3": {}}}}'
    )
    program = mpich2(collective("all-reduce", 9, 500), rules=tree)
    assert (program.knobs["algorithm"], program.n_steps) == ("recursive_multiplying", 2)
    with pytest.raises(UsageError, match="not among"):
        mpich2(collective("all-reduce", 8, 8), algorithm="ccl")
    with pytest.raises(UsageError, match="does no send-recv"):
        mpich2(Collective("send-recv", range(3), 4))


# ------------------------------------------------------------------------------------------------- MVAPICH2, two levels
NODES = [[0], [0, 0], [0, 1], [0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 0, 1], [0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 2, 2]]
SCATTERED = [[0, 1, 0, 1], [0, 1, 2, 0, 1, 0, 2, 2, 2], [2, 1, 0, 2, 1, 0, 0]]


@pytest.mark.sampled(6, "*")
@pytest.mark.parametrize("op", ["all-reduce", "barrier", "broadcast", "reduce"])
@pytest.mark.parametrize("hosts", [*NODES, *SCATTERED])
def test_two_levels_on_uneven_nodes(op: str, hosts: list[int]) -> None:
    p = len(hosts)
    for leaders in (1, 2, 5):
        for segments in (1, 3):
            for root in {0, p - 1} if op in ("broadcast", "reduce") else {0}:
                for count in (0,) if op == "barrier" else (0, 1, 64):
                    given = collective(op, p, count, root=root)
                    program = two_level(given, hosts=hosts, leaders=leaders, segments=segments)
                    assert_right(program)
                    assert_right(mvapich(given, machine(hosts), leaders=leaders, segments=segments))


@pytest.mark.parametrize("outer", [ring, rabenseifner, binomial])
def test_two_levels_take_any_algorithm_between_nodes(outer: Any) -> None:
    for hosts in [*NODES, *SCATTERED]:
        for leaders in (1, 3):
            assert_right(mvapich(collective("all-reduce", len(hosts), 37), hosts=hosts, leaders=leaders, outer=outer))


def test_two_levels_keep_the_order_on_neighbouring_ranks_only() -> None:
    for hosts in NODES:
        for op in ("all-reduce", "reduce"):
            given = collective(op, len(hosts), 8, commutative=False, root=len(hosts) - 1 if op == "reduce" else 0)
            program = two_level(given, hosts=hosts, leaders=3) if op == "all-reduce" or hosts[-1] == 0 else None
            assert program is None or not check(program)
    with pytest.raises(UsageError, match="order"):
        two_level(collective("all-reduce", 4, 8, commutative=False), hosts=[0, 1, 0, 1])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=14),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 40),
    st.sampled_from(["all-reduce", "broadcast", "reduce"]),
    st.data(),
)
def test_two_levels_on_any_placement(
    hosts: list[int], leaders: int, segments: int, count: int, op: str, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, len(hosts) - 1)) if op != "all-reduce" else 0
    given = collective(op, len(hosts), count, root=root)
    assert_right(two_level(given, hosts=hosts, leaders=leaders, segments=segments))


def test_leaders_share_the_vector() -> None:
    hosts = [node for node in range(64) for _ in range(28)]
    single = mvapich(collective("all-reduce", 64 * 28, 1 << 18), hosts=hosts, leaders=1)
    many = mvapich(collective("all-reduce", 64 * 28, 1 << 18), hosts=hosts)
    assert many.knobs["leaders"] == 16
    assert single.cost.reduced_bytes > 10 * many.cost.reduced_bytes
    assert single.cost.sent_bytes == many.cost.sent_bytes
    assert mvapich(collective("all-reduce", 64 * 28, 128), hosts=hosts).knobs["leaders"] == 1


def test_gpu_buffers_are_staged_where_a_user_asks_for_it() -> None:
    """Up to 8 KiB nothing is added; above, blocks: small ones start often, large ones fill late, between them is a best."""
    top = fabric("dgx-h100:4")

    def time_s(size_bytes: int, **knobs: Any) -> float:
        return simulate(mvapich(Collective("all-reduce", range(32), size_bytes), top, **knobs), top).time_s

    assert time_s(4096, buffers="gpu") == time_s(4096)
    times = [time_s(1 << 24, buffers="gpu", block_bytes=1 << power) for power in range(12, 25, 2)]
    assert times[0] > min(times) < times[-1]
    assert 0 < times.index(min(times)) < len(times) - 1
    assert min(times) > time_s(1 << 24)
    plan = mvapich(Collective("all-reduce", range(32), 1 << 24), top, buffers="gpu")
    assert plan.knobs["algorithm"] == "staged in blocks of 262144 B"
    with pytest.raises(UsageError, match="of the class of those inside"):
        mvapich(Collective("all-reduce", range(4), 1 << 20), machine([0, 0, 1, 1]), buffers="gpu")


# --------------------------------------------------------------------------------------------------- against the models
def seconds(program: Any, topology: Topology) -> float:
    made = machines.machine(topology)
    return events.run(flatten(program, made), made).time_ps * 1e-12


@pytest.mark.parametrize("p", [4, 8, 16])
def test_crossovers_are_where_the_closed_forms_cross(p: int) -> None:
    """Times grow with the size along a line; where two lines cross, simulated and declared agree within 1 %."""
    alpha_s, beta_s = 2e-6, 1e-10
    ideal = full(p, rate=1 / beta_s, latency_s=alpha_s)
    lines, declared = [], []
    for algorithm in (recursive_doubling, rabenseifner, ring):
        sizes = (4 * p * 64, 4 * p * 6400)
        programs = [algorithm(Collective("all-reduce", range(p), size)) for size in sizes]
        times = [seconds(program, ideal) for program in programs]
        slope = (times[1] - times[0]) / (sizes[1] - sizes[0])
        lines.append((times[0] - slope * sizes[0], slope))
        cost = programs[1].cost
        declared.append((cost.messages * alpha_s, cost.path_bytes * beta_s / sizes[1]))
    rd, rab, round_trip = lines
    assert (rab[0] - rd[0]) / (rd[1] - rab[1]) == pytest.approx(
        (declared[1][0] - declared[0][0]) / (declared[0][1] - declared[1][1]), rel=0.01
    )
    assert (round_trip[0] - rd[0]) / (rd[1] - round_trip[1]) == pytest.approx(
        (declared[2][0] - declared[0][0]) / (declared[0][1] - declared[2][1]), rel=0.01
    )
    assert round_trip[1] == pytest.approx(rab[1], rel=0.01)  # the same bytes, so that they never cross
    assert declared[0] == pytest.approx((np.log2(p) * alpha_s, np.log2(p) * beta_s))


def test_many_leaders_pay_off_where_the_paper_says() -> None:
    """64 nodes of 28 ranks, 100 Gb/s a node: more than twice as fast from 64 KiB to 2 MiB, little at 256 B,
    where a rank that has to look after several leaders loses what they gain."""
    hosts = [node for node in range(64) for _ in range(28)]
    alpha_s, wire_s, copy_s, add_s = 2e-6, 1 / 12.5e9, 1 / 8e9, 1 / 4e9

    def price(size: int, leaders: int) -> float:
        program = mvapich(Collective("all-reduce", range(64 * 28), size), hosts=hosts, leaders=leaders)
        inside, between = program.cost.terms[0], program.cost.terms[1:]
        network_s = sum(term.messages * alpha_s + term.size_bytes * leaders * wire_s for term in between)
        return 2 * size * copy_s + inside.messages * leaders * 2e-7 + network_s + program.cost.reduced_bytes * add_s

    for size in (1 << 16, 1 << 18, 1 << 21):
        assert price(size, 1) > 2 * min(price(size, leaders) for leaders in (4, 8, 16))
    assert price(256, 1) < 1.1 * min(price(256, leaders) for leaders in (4, 8, 16))


def test_between_nodes_the_library_sees_one_rank_per_host() -> None:
    hosts = [0, 0, 1, 1, 2, 2, 3, 3]
    program = two_level(Collective("broadcast", range(8), 64), machine(hosts), outer=open_mpi)
    assert_right(program)
    seen = open_mpi(Collective("broadcast", [0, 2, 4, 6], 64), machine(hosts))
    assert seen.knobs["algorithm"] == "basic_linear"
    assert program.n_steps == seen.n_steps + 1


@pytest.mark.parametrize(
    ("spelling", "op"),
    [
        ("open-mpi:algorithm=ring", "all-reduce"),
        ("open-mpi:algorithm=recursive_doubling", "all-reduce"),
        ("open-mpi:algorithm=recursive-doubling", "all-reduce"),
        ("open-mpi:algorithm=4", "all-reduce"),
        ("mpich2:algorithm=ring", "all-reduce"),
        ("mpich2:paper=true", "all-reduce"),
        ("mvapich:leaders=2:outer=rabenseifner:hosts=0x0x1x1x2x2", "all-reduce"),
        ("scatter-allgather:gather=ring", "broadcast"),
        ("nonoverlapping:inner=knomial:outer=open-mpi", "all-reduce"),
    ],
)
def test_knobs_as_they_come_from_a_command_line(spelling: str, op: str) -> None:
    _, algorithm, knobs = registry.algorithm(spelling)
    assert_right(algorithm(Collective(op, range(6), 4 * 36), **knobs))


@pytest.mark.parametrize("leaders", [1, 2, 3])
def test_the_network_may_add_up_between_nodes(leaders: int) -> None:
    machine = switch(8, sharp=True)
    given = Collective("all-reduce", range(8), 4 * 8 * 24)
    for segments in (1, 2):
        program = mvapich(
            given, machine, hosts=[0, 0, 1, 1, 2, 2, 3, 3], leaders=leaders, outer=nvls, segments=segments
        )
        assert len(program.aggregators) == 1
        assert_right(program)
