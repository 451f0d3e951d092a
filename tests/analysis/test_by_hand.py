"""Answers of the analysis on the smallest input that has one: figures, orders, limits and refusals worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kineto_traces import GEMM, Maker, read
from ringwright.analysis import culprits, findings, verdict
from ringwright.analysis.benchmarks import BenchmarkTimes, system_of
from ringwright.analysis.compared import diff, diff_times, gate
from ringwright.analysis.exposed.overlap import overlap
from ringwright.analysis.hangs.hang_mismatch import mismatches
from ringwright.analysis.hangs.hang_progress import EventRow, Progress, progress
from ringwright.analysis.hangs.hang_waits import NOT_STARTED, waits
from ringwright.analysis.machine import topology_loads
from ringwright.analysis.machine.topology import CommunicatorWiring, topology
from ringwright.analysis.metrics import metrics
from ringwright.analysis.slow.disturbance import NONE, UNKNOWN, Signs, _judge
from ringwright.analysis.slow.fail_slow import fail_slow, pair_slowdown
from ringwright.analysis.slow.lateness import FEWEST_STEPS, lateness
from ringwright.analysis.slow.slow_cells import Slow, explained
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

Row = dict[str, Any]


# ------------------------------------------------------------------------------------------------------- comparing runs
def test_an_algorithm_that_was_told_but_never_counted_is_no_change() -> None:
    row = {"op": "all-reduce", "size_bytes": 1024, "algorithm": "ring", "protocol": "ll", "channels": 2}
    assert diff.diff({"algorithms": [row | {"count": None}]}, {})["changes"] == []
    (change,) = diff.diff({"algorithms": [row | {"count": 3}]}, {})["changes"]
    assert (change["change"], change["before_count"], change["before_bytes"]) == ("removed", 3, 3072)


@pytest.mark.parametrize(
    ("ratio", "noise", "is_beyond"),
    [
        (1.01, 0.0, False),  # steady, but too little to matter
        (1 / 1.01, 0.0, False),
        (1.03, 0.0, True),
        (1 / 1.03, 0.0, True),
        (1.03, 0.007, True),
        (1.03, 0.008, False),  # four standard deviations are more
        (1.0, 0.0, False),
    ],
)
def test_two_times_differ_beyond_two_in_a_hundred_and_beyond_their_noise(
    ratio: float, noise: float, is_beyond: bool
) -> None:
    assert diff_times.beyond(ratio, noise) is is_beyond


def test_algorithms_are_compared_apart_only_where_both_runs_have_the_same() -> None:
    def row(algorithm: str, time_us: float) -> Row:
        named = {"algorithm": algorithm, "protocol": "simple", "datatype": "float"}
        base = {"kind": "job", "op": "all-reduce", "size_bytes": 1024, "nranks": 8, "task": "job", "samples": 1}
        return {**base, **named, "time_us": time_us, "spread": 0.01, "busbw_gbs": None}

    ring, tree = row("ring", 100.0), row("tree", 200.0)
    both, _ = diff_times.bandwidth({"bandwidth": [ring, tree]}, {"bandwidth": [ring, tree]})
    assert [(each["algorithm"], each["before_us"], each["after_us"]) for each in both] == [
        ("ring", 100.0, 100.0),
        ("tree", 200.0, 200.0),
    ]
    one, _ = diff_times.bandwidth({"bandwidth": [ring, tree]}, {"bandwidth": [ring]})
    assert [(each["algorithm"], each["before_us"], each["after_us"]) for each in one] == [(None, 150.0, 100.0)]


@pytest.mark.parametrize(("step_ratio", "kind"), [(None, NONE), (1.07, NONE), (1.09, UNKNOWN)])
def test_a_job_as_fast_as_its_baseline_is_not_disturbed(step_ratio: float | None, kind: str) -> None:
    """Where no steps are told, the times of its calls say so alone."""
    assert _judge(Signs((1.0, 1.0, 1.0), 1.0, step_ratio, 0, 100, (), 0.0))[0] == kind


@pytest.mark.parametrize(
    ("bound", "value", "detail"),
    [
        ("max_bytes", 1 << 20, "2 MiB, at most 1 MiB"),
        ("min_bytes", 3 << 20, "2 MiB, at least 3 MiB"),
        ("max_share", 0.2, "25.0%, at most 20.0%"),
        ("max_count", 7, "8 calls, at most 7 calls"),
    ],
)
def test_a_bound_of_the_gate_is_told_in_its_own_unit(bound: str, value: float, detail: str) -> None:
    size = 1 << 18
    histograms = {op: [{"size_bytes": size, "count": count}] for op, count in (("all-reduce", 8), ("all-gather", 24))}
    summary: Any = {"operations": [{"op": op, "count": 1, "size_histogram": told} for op, told in histograms.items()]}
    limits = gate.read_thresholds(None, limit=[{"op": "all-reduce", "min_size": "4K", bound: value}])
    failed = [each["detail"] for each in gate.check(summary, limits)["checks"] if not each["passed"]]
    assert failed == [f"all-reduce 4 KiB to any size: {detail}"]


def test_a_limit_that_cannot_be_read_is_told_by_its_number() -> None:
    with pytest.raises(UsageError) as refused:
        gate.read_thresholds(None, limit=[{"max_count": 3}, {"max_count": "three"}])
    assert "limit 2" in refused.value.where
    assert gate.check({"ranks_seen": 4}, gate.read_thresholds(None, expected_ranks=4))["checks"][-1]["passed"]


def test_a_summary_that_saw_no_rank_has_none_of_those_expected() -> None:
    checks = gate.check({}, gate.read_thresholds(None, expected_ranks=4))["checks"]
    (ranks,) = [each for each in checks if each["check"] == "ranks"]
    assert (ranks["passed"], ranks["measured"], ranks["detail"]) == (False, 0, "0 ranks seen, 4 expected")


# ------------------------------------------------------------------------------------------------------------ who it was
def test_a_port_error_shows_up_to_three_completions_that_followed() -> None:
    def error(op: str, number: int) -> Row:
        base = {"op": op, "rank": 3, "host": "n1", "file": "log", "line": number, "code": 12, "data": {}}
        return base | {"text": f"port error {number}"}

    said = verdict.verdict([error("async", 0), *(error("completion", at) for at in range(1, 6))], None, 8, {})
    assert said is not None
    assert (said["kind"], said["ranks"], said["hosts"], said["confidence"]) == ("port-error", [3], ["n1"], 0.95)
    assert [item.split(":")[1] for item in said["evidence"][1:]] == ["0", "1", "2", "3"]


def test_who_is_named_comes_first_then_who_died_then_the_surer() -> None:
    def one(kind: str, ranks: list[int], confidence: float) -> Row:
        return {"kind": kind, "ranks": ranks, "hosts": [], "confidence": confidence}

    ordered = [
        one("rank-died", [1], 0.6),
        one("straggler", [2], 0.95),
        one("hang-not-entered", [3], 0.9),
        one("slow-path", [4], 0.5),
        one("rank-died", [], 0.99),
        one("hang-group-stuck", [], 0.7),
    ]
    backwards = list(reversed(ordered))
    assert sorted(backwards, key=culprits._strength) == ordered


def standing(*calls: tuple[str, str, int | None, str]) -> Progress:
    """Return a group in which each rank stands at its first call: kind, operation, peer, state of that call."""
    state = Progress(members={0: tuple(range(len(calls)))}, present=set(range(len(calls))))
    for rank, (kind, op, peer, said) in enumerate(calls):
        call = EventRow(kind, op, rank, 0, rank, 0, peer, said, None, None, None, None, None, "dump", 0, None)
        state.open[rank] = [call]
        state.enqueued[0, rank] = 0
    return state


def test_a_device_that_did_not_start_what_the_others_did_holds_them_up() -> None:
    started = ("collective", "all-reduce", None, "started")
    graph = waits(standing(started, started, ("collective", "all-reduce", None, "scheduled"), started))
    assert graph.roots == {2: NOT_STARTED}
    assert graph.reach == {2: 3}
    assert graph.edges == {0: {2}, 1: {2}, 2: set(), 3: {2}}


def test_of_sends_and_receives_that_meet_none_has_to_start_first() -> None:
    pair = ("p2p", "send", 1, "started"), ("p2p", "recv", 0, "started")
    other = ("p2p", "send", 3, "started"), ("p2p", "recv", 2, "scheduled")
    assert waits(standing(*pair, *other)).roots == {}


def event(rank: int, seconds: float, **more: Any) -> Row:
    return {"kind": "collective", "op": "all-reduce", "rank": rank, "communicator": 0, "start_s": seconds, **more}


def test_only_a_death_ends_the_time_in_which_a_job_was_idle() -> None:
    """Six seconds of work, ten seconds of job: four idle ones, whatever a NIC reported meanwhile; a death ends the count."""
    told = [{"field": "job ended at", "value": str(10 * 10**9)}]
    events = [
        event(0, 5.0, duration_s=1.0, sequence=1),
        {"kind": "status", "op": "ended", "rank": 0, "text": "exit"},
        {"kind": "error", "op": "async", "rank": 0, "start_s": 2.0, "text": "port error"},
    ]
    trace = Trace.of({"events": rows("events", events), "claims": rows("claims", told)}, {"origin_ns": 0})
    assert progress(trace).idle_s == pytest.approx(4.0)
    events.append({"kind": "error", "op": "died", "rank": 0, "start_s": 8.5, "text": "signal 9"})
    trace = Trace.of({"events": rows("events", events), "claims": rows("claims", told)}, {"origin_ns": 0})
    assert progress(trace).idle_s == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("mine", "kind"),
    [
        ("BABABABA", "hang-mismatch-skipped"),  # goes on one operation early
        ("BA", "hang-mismatch-order"),  # nothing says that it goes on early
        ("BAABABAB", "hang-mismatch-order"),  # falls in again after two
        ("CBABABAB", "hang-mismatch-operation"),
        ("CABABABA", "hang-mismatch-inserted"),
    ],
)
def test_a_rank_out_of_step_exchanged_two_operations_left_one_out_or_put_one_in(mine: str, kind: str) -> None:
    """Three ranks of four alternate between two operations; the last one does as it is said."""
    names = {"A": "all-reduce", "B": "all-gather", "C": "broadcast"}
    base = {"kind": "collective", "communicator": 0, "state": "scheduled", "file": "dump", "datatype": "float32"}
    events = [
        base | {"rank": rank, "op": names[letter], "sequence": at, "sent_bytes": 8, "received_bytes": 8, "line": at}
        for rank, letters in enumerate(["ABABABAB"] * 3 + [mine])
        for at, letter in enumerate(letters)
    ]
    (told,) = mismatches(Trace.of({"events": rows("events", events)}))
    assert (told["kind"], told["ranks"], told["confidence"]) == (kind, [3], 0.95)
    assert told["evidence"][0] == "group 0, sequence 0: members do not agree in operation"


@pytest.mark.parametrize(
    ("op", "sent", "received", "agree"),
    [
        ("all-gather", (8, 16, 24), (48, 48, 48), True),
        ("all-gather", (8, 16, 24), (64, 64, 64), False),
        ("reduce-scatter", (48, 48, 48), (8, 16, 24), True),
        ("reduce-scatter", (48, 48, 48), (8, 16, 16), False),
        ("all-reduce", (8, 8, 8), (8, 8, 8), True),
        ("all-reduce", (8, 16, 24), (8, 16, 24), False),
    ],
)
def test_uneven_parts_agree_where_they_make_up_the_whole(
    op: str, sent: tuple[int, ...], received: tuple[int, ...], agree: bool
) -> None:
    base = {"kind": "collective", "communicator": 0, "sequence": 0, "state": "scheduled", "file": "dump", "line": 0}
    events = [
        base | {"op": op, "datatype": "float32", "rank": rank, "sent_bytes": out, "received_bytes": into}
        for rank, (out, into) in enumerate(zip(sent, received, strict=True))
    ]
    found = mismatches(Trace.of({"events": rows("events", events)}))
    assert [each["kind"] for each in found] == ([] if agree else ["hang-mismatch-size"])


@pytest.mark.parametrize(("steps", "ranks", "can_tell"), [(13, 2, True), (11, 2, False), (13, 1, False)])
def test_lateness_needs_a_dozen_steps_and_two_ranks(steps: int, ranks: int, can_tell: bool) -> None:
    """The first of thirteen steps has nothing before it, from which a rank's own time could run."""
    events = [
        event(rank, step + 0.1 * rank, duration_s=0.5 - 0.1 * rank, sequence=step, iteration=step, size_bytes=8)
        for step in range(steps)
        for rank in range(ranks)
    ]
    trace = Trace.of({"events": rows("events", events)})
    import polars as pl

    judged = trace.df.with_columns((pl.col("duration_s") * 1e6).alias("us"), wait=pl.lit(0.0))
    assert FEWEST_STEPS == 12
    assert (lateness(trace, judged) is not None) is can_tell


def test_ranks_that_launched_as_many_operations_are_no_verdict_and_two_counts_are_one() -> None:
    def told(*counts: tuple[int, int], listed: int = 1) -> Any:
        return verdict.verdict([], {"counts": list(counts), "listed": [(listed, 5, 0)]}, 8, {})

    assert told((8, 40)) is None
    assert told((4, 40), (4, 40)) is None
    said = told((7, 40), (1, 38))
    assert (said["kind"], said["ranks"]) == ("hang-ras", [5])
    assert said["evidence"][0] == "rank 5 is 2 operations behind the others"
    assert any("1 rank launched up to operation 38" in item for item in said["evidence"])
    assert told((1, 40), (7, 38), listed=0)["ranks"] == [0, 1, 2, 3, 4, 6, 7]  # the one that is ahead is listed


# ----------------------------------------------------------------------------------------------------------- slow networks
def test_a_slow_path_is_one_pair_of_one() -> None:
    cells = {(src, dst): 3.0 if (src, dst) == (2, 5) else 1.0 for src in range(8) for dst in range(8)}
    assert explained(cells) == [Slow("path", "rank 2 to rank 5", (2, 5), 1, 1, 3.0)]


def sends(*pairs: tuple[int, int, float], **more: Any) -> list[Row]:
    return [
        {"kind": "p2p", "op": "send", "rank": src, "peer": dst, "size_bytes": 8, "duration_s": seconds, **more}
        for src, dst, seconds in pairs
    ]


def test_a_peer_of_an_unknown_group_is_a_global_rank_and_one_beyond_a_known_group_is_nobody() -> None:
    unknown = Trace.of({"events": rows("events", sends((0, 3, 1e-3), (3, 0, 3e-3), communicator=7))})
    cells = pair_slowdown(unknown)[0]
    assert set(cells) == {(0, 3), (3, 0)}
    assert (cells[0, 3], cells[3, 0]) == (pytest.approx(0.5), pytest.approx(1.5))
    comm = {"communicator": 7, "comm_id": "g", "size": 2, "members": [4, 6]}
    known = Trace.of(
        {
            "events": rows("events", sends((4, 1, 1e-3), (4, 2, 1e-3), communicator=7)),
            "communicators": rows("communicators", [comm]),
        }
    )
    assert list(pair_slowdown(known)[0]) == [(4, 6)]


def test_a_damaged_rank_takes_no_memory_for_all_below_it() -> None:
    trace = Trace.of({"events": rows("events", sends((0, 1, 1e-3), (0, 2_000_000_000, 1e-3)))})
    assert set(pair_slowdown(trace)[0]) == {(0, 1), (0, 2_000_000_000)}
    assert fail_slow(trace) == []


def test_a_transfer_of_no_time_is_not_measured() -> None:
    trace = Trace.of({"events": rows("events", sends((0, 1, 0.0), (1, 0, 1e-3), (0, 2, 1e-3)))})
    assert sorted(pair_slowdown(trace)[0]) == [(0, 2), (1, 0)]


# --------------------------------------------------------------------------------------------------------------- topology
def test_a_line_that_names_a_rank_beyond_its_communicator_is_left_out() -> None:
    comm = {"communicator": 0, "comm_id": "g", "size": 2, "members": [0, 1]}
    ring = [{"communicator": 0, "kind": "ring", "channel": 0, "src": a, "dst": b} for a, b in ((0, 1), (1, 0))]
    odd = [{"communicator": 0, "kind": "ring", "channel": 1, "src": a, "dst": b} for a, b in ((0, 2), (2, 0), (-1, 0))]
    tables = {"communicators": rows("communicators", [comm]), "topology": rows("topology", [*ring, *odd])}
    told = topology(Trace.of(tables))
    assert [each["ranks"] for each in told["rings"]] == [[0, 1]]
    assert told["shown"] is not None
    assert "3 lines name ranks that a communicator of 2 does not have: they are left out" in told["shown"]["notes"]


@pytest.mark.parametrize(("members", "ranks"), [([4, 6], [4, 6]), ([], [])])
def test_a_nic_is_used_by_nobody_known_where_the_members_are_not(members: list[int], ranks: list[int]) -> None:
    comm = {"communicator": 0, "comm_id": "g", "size": 2, "members": members}
    base = {"communicator": 0, "kind": "connection", "channel": 0, "transport": "NET/IB/0", "nic": "0", "value": "send"}
    table = [base | {"src": src, "dst": 1 - src} for src in range(2)]
    told = topology(Trace.of({"communicators": rows("communicators", [comm]), "topology": rows("topology", table)}))
    assert [(nic["nic"], nic["ranks"], nic["connections"]) for nic in told["nics"]] == [("0", ranks, 2)]


@pytest.mark.parametrize(
    ("channels", "listed"), [(2, "0, 1"), (8, "0, 1, 2, 3, 4, 5, 6, 7"), (11, "0, 1, 2, 3, 4, 5, 6, 7 and 3 more")]
)
def test_channels_of_a_note_are_listed_up_to_eight(channels: int, listed: str) -> None:
    comm = {"communicator": 0, "comm_id": "g", "size": 4, "members": [0, 1, 2, 3]}
    parts = [
        {"communicator": 0, "kind": "tree-part", "channel": at, "src": 0, "dst": 1} for at in reversed(range(channels))
    ]
    told = topology(Trace.of({"communicators": rows("communicators", [comm]), "topology": rows("topology", parts)}))
    assert told["shown"] is not None
    assert f"all of the tree of channel {listed}: lines of some ranks are not here" in told["shown"]["notes"]


@pytest.mark.parametrize(
    ("hosts", "inside", "between"),
    [
        (["a", "a", "b", "b"], 16.0, 16.0),
        (["a", "a", "a", "a"], 16.0, None),
        (["a", "b", "c", "d"], None, 16.0),
        (["a", "b", None, "d"], None, None),
    ],
)
def test_an_all_to_all_loads_links_inside_and_between_hosts_where_there_are_any(
    hosts: list[str | None], inside: float | None, between: float | None
) -> None:
    group = CommunicatorWiring(0, 4, [0, 1, 2, 3], {0: [0, 1, 2, 3]})
    told = topology_loads.loads(group, hosts, 64)["loads"]
    direct = next(load for load in told if load["op"] == "all-to-all")
    assert (direct["link_inside_bytes"], direct["link_between_bytes"]) == (inside, between)


# -------------------------------------------------------------------------------------------------------------- benchmarks
@pytest.mark.parametrize(
    ("gpu", "nranks", "nnodes", "lacking"),
    [
        ("", 16, 2, "GPU"),
        ("A100", None, 2, "ranks"),
        ("A100", 16, None, "nodes"),
        ("A100", 15, 2, "GPUs per node"),
        ("", None, None, "GPU and ranks and nodes"),
    ],
)
def test_a_table_that_does_not_say_where_it_ran_is_refused_with_what_it_lacks(
    gpu: str, nranks: int | None, nnodes: int | None, lacking: str
) -> None:
    table = BenchmarkTimes("t", "all-reduce", nranks, nnodes, "benchmark", "nccl-tests", gpu=gpu)
    with pytest.raises(UsageError) as refused:
        system_of(table, None)
    assert refused.value.what == f"the table does not name its {lacking}"


def test_a_standard_box_is_taken_where_ranks_and_gpus_fit_it() -> None:
    table = BenchmarkTimes("t", "all-reduce", 16, 2, "benchmark", "nccl-tests", gpu="A100")
    assert system_of(table, None)[1] == "8 x A100 a node taken as dgx-a100:2"


# ------------------------------------------------------------------------------------------------- metrics and findings
def test_calls_without_a_time_count_in_the_first_interval() -> None:
    events = [event(0, 3.0, size_bytes=8), event(0, 14.0, size_bytes=8)]
    untimed = {"kind": "collective", "op": "all-gather", "rank": 0, "communicator": 0, "size_bytes": 8}
    told = metrics(Trace.of({"events": rows("events", [*events, untimed])}), 10.0)
    assert [(row["interval"], row.get("comm/all-gather/calls")) for row in told] == [(0, 1.0), (1, None)]


@pytest.mark.parametrize(
    ("small", "large", "is_told"), [(600, 500, True), (500, 500, True), (499, 501, False), (400, 300, False)]
)
def test_a_thousand_operations_half_of_them_small_are_a_finding(small: int, large: int, is_told: bool) -> None:
    histogram = [{"size_bytes": 8192, "count": small}, {"size_bytes": 8193, "count": large}]
    summary: Any = {"operations": [{"op": "all-reduce", "size_histogram": histogram}], "inputs": []}
    told = [each["detail"] for each in findings._small(summary, [])]
    assert [text.split(":")[0] for text in told] == [
        f"{small:,} of {small + large:,} operations move 8 KiB or less"
    ] * is_told


def test_losses_and_verdicts_are_told_by_the_first_of_them() -> None:
    summary: Any = {"losses": [f"file {at} was cut" for at in range(10)], "inputs": []}
    (told,) = findings._losses(summary, [])
    assert (told["detail"], told["evidence"]) == ("file 0 was cut", [f"file {at} was cut" for at in range(8)])
    accused = {"kind": "hang", "ranks": [*range(20)], "hosts": [], "evidence": [], "confidence": 0.5, "command": "x"}
    named: Any = {"verdict": accused, "inputs": []}
    (told,) = findings._verdict(named, [])
    assert told["title"] == f"hang: {', '.join(map(str, range(16)))}"


# ---------------------------------------------------------------------------------------------------------------- overlap
def in_order(times: int, launch: float) -> Maker:
    """Collectives that wait 100 us for their turn; ``launch`` says when the next compute kernel is launched, which follows."""
    job = Maker()
    for place in range(times):
        at = 1000.0 * place
        job.collective(at + 200, 100, launch=at + 100)
        job.kernel(GEMM, at + 310, 100, launch=at + launch)
    return job


@pytest.mark.parametrize(
    ("times", "launch", "reason"),
    [
        (10, 120, "connections"),
        (9, 120, "dependency"),  # nine chances to overtake are too few to say that launch order is always kept
        (12, 205, "dependency"),  # launched when the collective ran already: no chance to overtake it
    ],
)
def test_that_launch_order_is_kept_is_said_after_ten_chances_to_break_it(
    times: int, launch: float, reason: str
) -> None:
    assert [row["reason"] for row in overlap(read(in_order(times, launch)))["audit"]] == [reason]
