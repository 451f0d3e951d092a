"""What every policy must keep, whatever the job: bytes, order, windows, and no idle link beside what may be sent."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringwright.engines.job.run import simulate
from ringwright.ground.units import PS
from ringwright.model.rewrites import operations
from ringwright.model.stages import Costs, LinkCosts, ServerCosts
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright_lab.contracts import scheduling_laws as laws
from ringwright_lab.contracts.outcome import DECLINED
from scheduled_jobs import POLICIES, Layers, layers, link, on_mesh, operation_rows

SEEDS = st.integers(0, 1 << 30)
NAMES = st.sampled_from(sorted(POLICIES))
STEPS = 3


def scheduled(name: str, made: Workload, *, op: str = "all-reduce", costs: Costs | None = None) -> laws.Scheduled:
    """Return the job before and after its scheduler, and its run, on a link of one byte a second."""
    costs = costs or (ServerCosts(1.0, 0.1) if op == "push-pull" else link(1.0, 0.1))
    job = POLICIES[name](made, costs)
    return laws.Scheduled(made, job, costs, simulate(job, costs, steps=laws.STEPS))


@given(SEEDS, NAMES, st.sampled_from(["all-reduce", "push-pull"]))
def test_every_law_is_kept(seed: int, name: str, op: str) -> None:
    """Whole bytes and seconds, so that nothing is rounded; ``check_scheduler`` asks the same of megabytes."""
    each = scheduled(name, layers(random.Random(seed)).job(op=op), op=op)
    broken = {law: why for law, look in laws.LAWS.items() if (why := look(each)) and not why.startswith(DECLINED)}
    assert broken == {}


@given(SEEDS, NAMES)
def test_every_byte_is_sent_once(seed: int, name: str) -> None:
    job = POLICIES[name](layers(random.Random(seed)).job(), link())
    for operation in operations(job):
        assert operation.size_bytes == sum(payload.size_bytes for payload in operation.payloads)


@given(SEEDS, st.integers(1, 20), st.integers(1, 40))
def test_each_piece_of_a_bucket_carries_whose_bytes_are_in_it(seed: int, cut: int, bucket: int) -> None:
    """Byte by byte: a bucket lays its payloads one after another, and pieces of one size cut across them."""
    fuse = Rewrite("fuse", settings={"caps_bytes": [bucket]})
    partition = Rewrite("partition", settings={"size_bytes": cut})
    job = layers(random.Random(seed)).job().with_policy("cut", rewrites=(fuse, partition))
    for operation in operations(job):
        owner = [payload.name for payload in operation.payloads for _ in range(payload.size_bytes)]
        assert operation.pieces == -(-len(owner) // cut)
        for piece in range(operation.pieces):
            inside = set(owner[piece * cut : (piece + 1) * cut])
            assert {payload.name for payload in operation.carried(piece)} == inside


@given(SEEDS, NAMES)
def test_a_barrier_holds_everything_back(seed: int, name: str) -> None:
    """With a barrier, whatever the order of sending, forward begins when the last operation of the step has ended."""
    job = POLICIES[name](layers(random.Random(seed)).job(), link()).with_policy("barrier", boundary="barrier")
    run = simulate(job, link(), steps=STEPS)
    forward = [row for row in run.laid.rows if row.kind == "F"]
    for step in range(1, STEPS):
        done = max(int(run.ends(row, step - 1).max()) for row in operation_rows(run))
        assert min(int(run.starts(row, step).min()) for row in forward) >= done


@given(SEEDS)
@example(4729)  # the last piece of another layer is on its way when the first layer's gradient is ready
def test_layers_are_let_through_one_by_one(seed: int) -> None:
    """Without a barrier, a first layer begins when its own parameters are back, whatever else is still on its way."""
    made = layers(random.Random(seed))
    made = replace(made, sizes=(1, *(9 + size for size in made.sizes[1:])))
    run = simulate(POLICIES["p3"](made.job(), link()), link(), steps=2)
    begun = min(int(run.starts(row, 1).min()) for row in run.laid.rows if row.kind == "F")
    backward = max(int(run.ends(row, 0).max()) for row in run.laid.rows if row.kind == "B")
    back = {row.name: int(run.ends(row, 0).max()) for row in operation_rows(run)}
    assert begun == max(back["layer0"], backward)


@given(SEEDS, NAMES, st.sampled_from(["all-reduce", "push-pull"]))
def test_no_run_is_shorter_than_its_bounds(seed: int, name: str, op: str) -> None:
    """At least the chain of compute, at least what each queue and each stream has to do."""
    made = layers(random.Random(seed))
    run = scheduled(name, made.job(op=op), op=op).run
    flat, times = run.laid.flat, run.times
    whole = int(times.end.max())
    assert whole >= STEPS * (sum(made.forward) + sum(made.backward)) * PS
    for queue in range(len(flat.queues.window)):
        mine = flat.queue == queue
        assert whole >= int(flat.work_ps[mine].sum())
    # The first tensor's way: it is ready after the whole of backward, and forward of the next step needs it.
    first = made.sizes[0] * PS
    assert int(times.end[times.end >= 0].max()) >= (sum(made.forward) * 2 + sum(made.backward)) * PS + first


# --------------------------------------------------------------------------------------------------- ranks agree, and fold
@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(4))
def test_folded_equals_unfolded_with_a_slow_rank(seed: int, name: str) -> None:
    costs = LinkCosts(1.0, 0.05, ring=True) if name != "poseidon" else link(2.0)
    each = scheduled(name, on_mesh(layers(random.Random(seed)).job()), costs=costs)
    assert laws.folds(each) is None
    folded, whole = (
        simulate(each.job, costs, steps=STEPS, slowdowns={1: 1.5}, folded=alike) for alike in (True, False)
    )
    assert len(folded.laid.rank_classes) < len(whole.laid.rank_classes) == 6
    assert folded.step_s == whole.step_s


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_rank_issues_the_same_operations_in_the_same_order(name: str) -> None:
    """Ranks of a group have one order, and with an indexed order both groups have the same one."""
    assert laws.one_order(scheduled(name, on_mesh(layers(random.Random(7), most=8).job()), costs=link())) is None


def test_buckets_start_in_the_order_of_their_index_whatever_is_ready_first() -> None:
    """What a second stream makes early, but is listed last, waits for those before it where operations go by index."""
    job = Layers((1, 1, 1), (1, 1, 1), (5, 5, 5)).job()
    tasks = tuple(replace(task, stream="side") if task.name == "B.layer0" else task for task in job.tasks)
    job = replace(job, tasks=tasks, edges=tuple(edge for edge in job.edges if edge.dst != "B.layer0"))
    order = {}
    for agreement in ("index", "program"):
        each = job.with_policy("test", queue=Queue(), agreement=agreement, boundary="barrier")
        run = simulate(each, link(), steps=1)
        order[agreement] = [row.name for row in sorted(operation_rows(run), key=lambda row: int(run.starts(row, 0)[0]))]
    assert order["index"] == ["layer2", "layer1", "layer0"]
    assert order["program"] == ["layer0", "layer2", "layer1"]


@given(SEEDS)
def test_a_random_order_is_drawn_anew_and_repeats_with_its_seed(seed: int) -> None:
    job = (
        Layers((1,) * 12, (0,) * 12, (3,) * 12).job().with_policy("drawn", queue=Queue(random=seed), boundary="barrier")
    )
    runs = [simulate(job, link(), steps=2) for _ in range(2)]
    assert runs[0].times.start.tolist() == runs[1].times.start.tolist()
    orders = [
        [row.name for row in sorted(operation_rows(runs[0]), key=lambda row, at=step: int(runs[0].starts(row, at)[0]))]  # type: ignore[misc]
        for step in range(2)
    ]
    assert orders[0] != orders[1]


def test_a_rewrite_that_does_not_exist_is_named() -> None:
    from ringwright.ground.errors import UsageError

    job = Layers((1,), (1,), (1,)).job().with_policy("odd", rewrites=(Rewrite("melt"),))
    with pytest.raises(UsageError, match="'melt' is no rewrite"):
        simulate(job, link())
