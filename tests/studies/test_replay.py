"""A recorded step as a workload: who waits for whom, ranks that differ, what is assumed, and how far the replay is off."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import pytest

from ringwright.costs.measured_costs import MeasuredCosts, MeasuredOperation
from ringwright.engines.job.run import simulate
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError, UsageError, WorkloadError
from ringwright.ground.trace_tables import rows
from ringwright.model.stages import LinkCosts, seconds
from ringwright.model.trace import Trace
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Queue, Workload
from ringwright.schedulers.order import by_layer
from ringwright.workloads.recorded.period import period
from ringwright.workloads.replay import baseline, replay, replayed
from shared_data import needs_shared_data, real

MS = 1e-3


def trace(events: list[dict[str, Any]], groups: Sequence[tuple[list[int], str]], **meta: Any) -> Trace:
    """Return a Trace of these events; ``groups`` are (members, role)."""
    listed = [
        {"communicator": at, "size": len(members), "members": members, "role": role or None}
        for at, (members, role) in enumerate(groups)
    ]
    return Trace.of(
        {"events": rows("events", events), "communicators": rows("communicators", listed)}, {"source": "hand", **meta}
    )


def work(
    start: float, lasted: float, phase: str = "", rank: int = 0, step: int = 1, stream: str = "7"
) -> dict[str, Any]:
    """Return a kernel; times in ms."""
    return {
        "kind": "compute",
        "rank": rank,
        "start_s": start * MS,
        "duration_s": lasted * MS,
        "enqueue_s": (start - 0.001) * MS,
        "phase": phase or None,
        "iteration": step,
        "stream": stream,
        "kernel": "gemm",
    }


def call(
    start: float,
    lasted: float,
    size: int,
    phase: str = "",
    *,
    op: str = "all-reduce",
    rank: int = 0,
    group: int = 0,
    issued: float | None = None,
    step: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """Return a call; times in ms."""
    return {
        "kind": "p2p" if op in ("send", "recv") else "collective",
        "op": op,
        "rank": rank,
        "communicator": group,
        "start_s": start * MS,
        "duration_s": lasted * MS,
        "size_bytes": size,
        "phase": phase or None,
        "iteration": step,
        "enqueue_s": (start if issued is None else issued) * MS - 1e-7,
        "element_bytes": 4,
        **more,
    }


def data_parallel(step: int = 1, at: float = 0.0, rank: int = 0) -> list[dict[str, Any]]:
    """Return a step of 12 ms: forward 2, backward 2 + 4, of which the second bucket's sum lasts 4 ms longer, update 2."""
    return [
        work(at, 2, "forward", rank, step),
        work(at + 2, 2, "backward", rank, step),
        call(at + 4, 3, 100, "backward", rank=rank, step=step),
        work(at + 4, 2, "backward", rank, step),
        call(at + 7, 3, 300, "backward", rank=rank, issued=at + 6, step=step),
        work(at + 10, 2, "optimizer", rank, step),
    ]


def two_steps() -> Trace:
    return trace([*data_parallel(), *data_parallel(2, 12.0)], [([0, 1], "dp")])


def task_seconds(workload: Workload) -> dict[str, float]:
    return {task.name: round(task.seconds / MS, 6) for task in workload.tasks}


# ------------------------------------------------------------------------------------------------------- data parallel
def test_gradients_are_made_by_the_backward_pass_and_used_by_updates() -> None:
    made = replay(two_steps(), step=1)
    assert check(made) == []
    assert [(p.role, p.op, p.size_bytes, p.per, p.merges) for p in made.payloads] == [
        ("dp", "all-reduce", 100, "step", "gradients"),
        ("dp", "all-reduce", 300, "step", "gradients"),
    ]
    found = task_seconds(made)
    first, second = (made.payloads[at].producers[0] for at in (0, 1))
    assert (made.task[first].kind, made.task[second].kind) == ("B", "B")
    assert (found[first], found[second]) == (2, 2)
    updates = [task for task in made.tasks if task.kind == "U"]
    assert [round(task.seconds / MS, 6) for task in updates] == [0.5, 1.5]  # by bytes
    assert made.mesh.size == 2


def test_the_forward_pass_is_shared_out_among_gradients_in_reverse() -> None:
    made = replay(two_steps(), step=1)
    forward = [task.name for task in made.tasks if task.kind == "F"]
    assert [round(made.task[name].seconds / MS, 6) for name in forward[:2]] == [1.0, 1.0]
    later = {edge.src: edge.dst for edge in made.edges if edge.distance == 1}
    assert later["U.1"] == forward[0]  # the last gradient is of the first layers
    assert later["U.0"] == forward[1]
    assert by_layer(made) == {"dp.1": 0, "dp.0": 1}


def test_its_own_replay_takes_as_long_as_the_step() -> None:
    measured, again = baseline(two_steps(), step=1)
    assert measured == pytest.approx(12 * MS)
    assert again == pytest.approx(12 * MS)


def test_a_loss_summed_after_the_update_is_the_begin_of_the_next_step() -> None:
    """The commonest loop: steps are marked when the optimizer is through, and then the loss is summed over ranks."""

    def step(rank: int, at: float, number: int) -> list[dict[str, Any]]:
        marked = {"kind": "step", "rank": rank, "iteration": number, "start_s": at * MS, "duration_s": 12 * MS}
        timed = {"rank": rank, "step": number}
        return [
            marked,
            call(at + 0.2, 0.3, 4, "optimizer", **timed),
            call(at + 4, 3, 100, "backward", **timed),
            call(at + 7, 3, 300, "backward", issued=at + 6, **timed),
        ]

    recorded = trace(
        [each for rank in (0, 1) for number in (1, 2) for each in step(rank, 12.0 * number, number)], [([0, 1], "")]
    )
    made = replay(recorded, step=1)
    assert check(made) == []
    assert [(each.role, each.size_bytes) for each in made.payloads] == [("world", 4), ("dp", 100), ("dp", 300)]
    loss = made.payloads[0]
    assert {made.task[name].kind for name, _ in loss.consumers} == {"F"}
    measured, again = baseline(recorded, step=1)
    assert again == pytest.approx(measured, rel=0.02)


def test_a_policy_on_a_recorded_step() -> None:
    """With layer-wise boundaries the second gradient's sum is what forward waits for, and nothing takes longer."""
    found = replayed(two_steps(), step=1)
    assert found.costs is not None
    queue = Queue(keys=by_layer(found.workload))
    crossing = found.workload.with_policy("x", boundary="layer", queue=queue)
    faster = simulate(crossing, found.costs).step_s
    assert faster < 12 * MS
    assert faster >= 10 * MS  # computation alone, and the first sum's layers come last


def test_what_was_assumed_is_said() -> None:
    made = replay(two_steps(), step=1, assumptions=("asked on a Sunday",))
    told = "\n".join(made.assumptions)
    for part in (
        "asked on a Sunday",
        "1 of 2 ranks were not recorded",
        "inferred from the order",
        "divided among",
        "share",
    ):
        assert part in told


def test_without_phases_a_third_is_forward() -> None:
    events = [{**event, "phase": None} for event in data_parallel()]
    made = replay(trace(events, [([0, 1], "dp")]))
    assert sum(task.seconds for task in made.tasks if task.kind == "F") == pytest.approx(2 * MS)
    assert {payload.merges for payload in made.payloads} == {"gradients"}


# ------------------------------------------------------------------------------------------------------------- waiting
def test_work_after_a_gap_waited_for_the_call_in_it() -> None:
    events = [
        work(0, 2),
        call(2, 3, 50),
        work(5, 1),
        work(6, 1),
        work(7, 1, step=2),
        call(8, 1, 50, step=2),
    ]
    found = replayed(trace(events, [([0, 1], "tp")]), step=1)
    payload = found.workload.payloads[0]
    assert (payload.role, payload.per) == ("tp", "micro-batch")
    names = [task.name for task in found.workload.tasks]
    assert payload.producers == (names[0],)
    assert payload.consumers == ((names[1], 0),)
    assert task_seconds(found.workload)[names[1]] == 2
    assert found.costs is not None
    assert simulate(found.workload, found.costs).step_s == pytest.approx(7 * MS)
    assert simulate(found.workload, LinkCosts(50 / MS)).step_s == pytest.approx(5 * MS)  # the call in 1 ms


def test_a_call_that_the_host_issued_late_is_late_again() -> None:
    events = [work(0, 2), call(4, 1, 50), work(5, 1), work(6, 1, step=2), call(7, 1, 50, step=2)]
    found = replayed(trace(events, [([0, 1], "tp")]), step=1)
    assert found.costs is not None
    assert simulate(found.workload, found.costs).step_s == pytest.approx(6 * MS)


def test_gaps_without_a_call_are_the_hosts() -> None:
    events = [work(0, 2), work(5, 1), call(6, 1, 50), work(7, 1), work(8, 1, step=2), call(9, 1, 50, step=2)]
    measured, again = baseline(trace(events, [([0, 1], "tp")]), step=1)
    assert (measured, again) == (pytest.approx(8 * MS), pytest.approx(8 * MS))


def test_kernels_of_other_streams_are_left_out_and_said() -> None:
    events = [*data_parallel(), *data_parallel(2, 12.0), work(1, 0.5, stream="20")]
    made = replay(trace(events, [([0, 1], "dp")]), step=1)
    assert any(each.startswith("1 kernels and copies beside the main stream") for each in made.assumptions)


# ------------------------------------------------------------------------------------------------------ several ranks
def test_a_slow_rank_keeps_the_others_waiting() -> None:
    """Rank 1 computes 3 ms longer; rank 0's call lasts 3 ms longer, which is waiting and not the call."""
    events = []
    for step, at in ((1, 0.0), (2, 10.0)):
        events += [work(at, 2, step=step), call(at + 2, 5, 50, step=step), work(at + 7, 3, step=step)]
        events += [
            work(at, 5, rank=1, step=step),
            call(at + 5, 2, 50, rank=1, step=step),
            work(at + 7, 3, rank=1, step=step),
        ]
    found = replayed(trace(events, [([0, 1], "tp")]), step=1)
    assert len(found.workload.classes) == 2
    assert found.workload.payloads[0].joint
    assert found.costs is not None
    assert seconds(found.costs, "all-reduce", 50, (0, 1), "tp") == pytest.approx(2 * MS)
    assert simulate(found.workload, found.costs).step_s == pytest.approx(10 * MS)


def test_ranks_that_do_the_same_are_one_class() -> None:
    events = [each for rank in range(4) for each in (*data_parallel(rank=rank), *data_parallel(2, 12.0, rank))]
    made = replay(trace(events, [([0, 1, 2, 3], "dp")]), step=1)
    assert (len(made.classes), made.mesh.size, len(made.payloads)) == (1, 4, 2)


def test_ranks_out_of_step_are_named_with_position_and_operations() -> None:
    events = [
        call(0, 1, 8),
        call(1, 1, 16),
        call(0, 1, 8, rank=1),
        call(1, 1, 16, op="broadcast", rank=1),
    ]
    with pytest.raises(WorkloadError) as caught:
        replay(trace(events, [([0, 1], "dp")]))
    for part in ("rank 1", "operation 1", "broadcast of 16 B", "rank 0", "all-reduce of 16 B"):
        assert part in str(caught.value)
    with pytest.raises(WorkloadError, match="issues nothing as operation 1"):
        replay(trace(events[:3], [([0, 1], "dp")]))


def test_groups_make_a_mesh() -> None:
    groups = [([0, 1], "tp"), ([2, 3], "tp"), ([0, 2], "dp"), ([1, 3], "dp")]
    events = []
    for rank in range(4):
        events += [
            work(0, 1, "forward", rank),
            call(1, 1, 8, "forward", rank=rank, group=rank // 2),
            work(2, 1, "backward", rank),
        ]
        events += [call(3, 1, 64, "backward", rank=rank, group=2 + rank % 2), work(4, 1, "optimizer", rank)]
    made = replay(trace(events, groups))
    assert made.mesh.axes == (("dp", 2), ("tp", 2))
    assert {payload.role: payload.axes for payload in made.payloads} == {"tp": ("tp",), "dp": ("dp",)}


def test_groups_that_are_no_mesh_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"mesh|grid"):
        replay(trace([call(0, 1, 8), call(0, 1, 8, rank=4)], [([0, 1, 4], "dp")]))


def test_stages_of_a_pipeline() -> None:
    events = []
    for step, at in ((1, 0.0), (2, 6.0)):
        events += [work(at, 2, "forward", 0, step), call(at + 2, 1, 80, op="send", peer=1, step=step, phase="forward")]
        events += [
            call(at, 3, 80, op="recv", rank=1, peer=0, step=step, phase="forward"),
            work(at + 3, 3, "forward", 1, step),
        ]
        events += [work(at + 5.9, 0.1, "forward", 0, step)]
    found = replayed(trace(events, [([0, 1], "pp")]), step=1)
    payload = found.workload.payloads[0]
    assert (payload.op, payload.of, payload.peer, payload.role) == ("send-recv", "pp0", "pp1", "pp")
    assert found.workload.task[payload.producers[0]].of == "pp0"
    assert found.workload.task[payload.consumers[0][0]].of == "pp1"
    assert found.costs is not None
    assert seconds(found.costs, "send-recv", 80, (0, 1), "pp") == pytest.approx(1 * MS)


# --------------------------------------------------------------------------------------------------------------- steps
def test_the_steadiest_step_is_taken_and_another_can_be_asked_for() -> None:
    events: list[dict[str, Any]] = []
    at = 0.0
    for step, slower in enumerate((9.0, 1.0, 1.0, 4.0, 1.0)):
        events += [work(at, slower, step=step), call(at + slower, 1, 8, step=step), work(at + slower + 1, 1, step=step)]
        events += [{"kind": "step", "rank": 0, "iteration": step, "start_s": at * MS, "duration_s": (slower + 2) * MS}]
        at += slower + 2
    found = replayed(trace(events, [([0, 1], "tp")]))
    assert found.step == "step 1"
    assert found.measured_s == pytest.approx(3 * MS)
    assert replayed(trace(events, [([0, 1], "tp")]), step=3).measured_s == pytest.approx(6 * MS)
    with pytest.raises(UsageError, match="step 17") as caught:
        replay(trace(events, [([0, 1], "tp")]), step=17)
    assert "0 to 4" in caught.value.remedy


def test_nothing_to_replay_is_an_error_with_the_reason() -> None:
    with pytest.raises(InputError, match="no call"):
        replay(trace([work(0, 1)], [([0, 1], "dp")]))
    with pytest.raises(InputError) as caught:
        replay(trace([call(0, 1, 0)], [([0, 1], "dp")]))
    assert "carry no bytes" in str(caught.value)


# ------------------------------------------------------------------------------------------------- communication only
def test_the_shortest_repetition() -> None:
    assert period("abcabcabc") == 3
    assert period("xyabab") == 2
    assert period("aaaaaaaa") == 1
    assert period("aaaaaaaa", steps=2) == 4
    assert period("abcdef") is None


def test_a_log_without_times_is_communication_only_and_says_so() -> None:
    log = read([str(files("ringwright") / "samples" / "job.log.gz")])
    found = replayed(log)
    assert (found.ground, found.costs, found.measured_s) == ("communication-only", None, None)
    made = found.workload
    assert "communication only" in made.assumptions[0]
    assert (made.mesh.size, len(made.classes), len(made.payloads)) == (16, 1, 12)
    assert sum(task.seconds for task in made.tasks) == 0
    sizes = sorted(payload.size_bytes for payload in made.payloads)
    assert sizes == [4, 4194304, *[16777216] * 8, 26214400, 28328960]
    inner = 8 * 16777216
    assert simulate(made, LinkCosts(float(inner))).step_s == pytest.approx(1.0)  # groups run beside each other
    with pytest.raises(InputError, match="no times"):
        baseline(log)


# --------------------------------------------------------------------------------------------------------------- costs
def test_measured_costs_are_exact_where_measured_and_a_line_elsewhere() -> None:
    costs = MeasuredCosts.of(
        [
            MeasuredOperation("all-reduce", 100, "dp", 2.0),
            MeasuredOperation("all-reduce", 100, "dp", 4.0),
            MeasuredOperation("all-reduce", 300, "dp", 7.0),
        ]
    )
    assert seconds(costs, "all-reduce", 100, (0, 1)) == 3.0
    assert seconds(costs, "all-reduce", 300, (0, 1)) == 7.0
    assert seconds(costs, "all-reduce", 200, (0, 1)) == pytest.approx(5.0)
    assert seconds(costs, "all-reduce", 50, (0, 1)) == pytest.approx(1.5)  # half of the smallest
    with pytest.raises(UsageError, match="no broadcast was measured"):
        costs.stages("broadcast", 1, (0, 1), "dp")
    with pytest.raises(UsageError, match="no operation"):
        MeasuredCosts.of([])


# -------------------------------------------------------------------------------------------------------- real traces
TRUST = [  # recording, its step's seconds, how far its own replay may be off
    ("real/kineto/hta_nccl_data.json.gz", 0.2197, 0.005),
    ("real/kineto/hta_negative_queue_rank0.json.gz", 0.2165, 0.01),
    ("real/kineto/hta_sampled_rank-0.json.gz", 0.5964, 0.005),
    ("real/kineto/hta_trace_diff_control.json.gz", 0.0769, 0.04),
    ("real/kineto/param_dlrm_kineto.tar.gz", 0.0105, 0.10),
]


@needs_shared_data
@pytest.mark.parametrize(("path", "lasted", "most"), TRUST, ids=[path.rpartition("/")[2] for path, _, _ in TRUST])
def test_real_traces_replay_their_own_step(path: str, lasted: float, most: float) -> None:
    measured, again = baseline(read([str(real(path))]))
    assert measured == pytest.approx(lasted, rel=0.01)
    assert again == pytest.approx(measured, rel=most)


@needs_shared_data
def test_a_real_data_parallel_step() -> None:
    found = replayed(read([str(real("real/kineto/hta_nccl_data.json.gz"))]))
    sums = found.workload.gradients(("dp",))
    assert len(sums) == 5
    assert sum(each.size_bytes for each in sums) == 306_684_384 // 3  # three steps were recorded
    assert check(found.workload, warnings=False) == []
    forward = sum(task.seconds for task in found.workload.tasks if task.kind == "F")
    assert 0.09 < forward < 0.12  # as its own annotations say: 0.103 s


@needs_shared_data
def test_an_execution_trace_of_a_real_job() -> None:
    found = replayed(read([str(real("real/chakra/mlcommons_chakra_feeder_tests_trace.tar.gz"))]))
    assert found.ground == "dependencies"
    assert sum(payload.op == "all-reduce" for payload in found.workload.payloads) == 5
    assert found.costs is not None
    computed = sum(task.seconds for task in found.workload.tasks)
    assert simulate(found.workload, found.costs).step_s >= computed


@needs_shared_data
def test_a_chunk_program_of_eight_ranks() -> None:
    """A ring of 8 ranks in 14 rounds of 128 KiB, as sends, receives and sums with dependencies."""
    listed = [str(real(f"real/chakra/astra_sim/custom_ring_allreduce_8npus_1MB.{rank}.et")) for rank in range(8)]
    found = replayed(read(listed))
    assert len(found.workload.payloads) == 8 * 14
    assert {payload.size_bytes for payload in found.workload.payloads} == {131072}
    assert simulate(found.workload, LinkCosts(131072.0)).step_s == pytest.approx(14.0, rel=1e-4)


@needs_shared_data
def test_eight_ranks_without_times_of_their_calls() -> None:
    found = replayed(read([str(real("real/pytorch-et/param_dlrm_pytorch_et.tar.gz"))]))
    assert found.ground == "communication-only"
    assert (found.workload.mesh.size, len(found.workload.payloads)) == (8, 8)
