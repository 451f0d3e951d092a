"""What every policy must keep, whatever the job: bytes, order, windows, and no idle link beside what may be sent."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.costs.stages import LinkCosts, ServerCosts
from ringwright.engines.job.run import JobRun, simulate
from ringwright.engines.job.step import PS
from ringwright.rewrites import operations as rewritten
from ringwright.workload import Queue, Rewrite, Workload
from scheduled_jobs import POLICIES, Layers, layers, link, on_mesh, operations, sent

SEEDS = st.integers(0, 1 << 30)
NAMES = st.sampled_from(sorted(POLICIES))
STEPS = 3


def run_of(name: str, made: Layers, *, op: str = "all-reduce") -> tuple[Workload, JobRun]:
    """Return the scheduled job and its run."""
    costs = ServerCosts(1.0, 0.1) if op == "push-pull" else link(1.0, 0.1)
    job = POLICIES[name](made.job(op=op), costs)
    return job, simulate(job, costs, steps=STEPS)


@given(SEEDS, NAMES)
def test_every_byte_is_sent_once(seed: int, name: str) -> None:
    job = POLICIES[name](layers(random.Random(seed)).job(), link())
    found = rewritten(job)
    carried = Counter(payload.name for operation in found for payload in operation.payloads)
    assert carried == dict.fromkeys((payload.name for payload in job.payloads), 1)
    for operation in found:
        whole, rest = operation.sizes()
        assert whole * (operation.pieces - 1) + rest == operation.size_bytes
        assert operation.size_bytes == sum(payload.size_bytes for payload in operation.payloads)
        assert 0 < rest <= whole


@given(SEEDS, st.integers(1, 20), st.integers(1, 40))
def test_each_piece_of_a_bucket_carries_whose_bytes_are_in_it(seed: int, cut: int, bucket: int) -> None:
    """Byte by byte: a bucket lays its payloads one after another, and pieces of one size cut across them."""
    fuse = Rewrite("fuse", settings={"caps_bytes": [bucket]})
    partition = Rewrite("partition", settings={"size_bytes": cut})
    job = layers(random.Random(seed)).job().with_policy("cut", rewrites=(fuse, partition))
    for operation in rewritten(job):
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
        done = max(int(run.ends(row, step - 1).max()) for row in operations(run))
        assert min(int(run.starts(row, step).min()) for row in forward) >= done


@given(SEEDS)
def test_layers_are_let_through_one_by_one(seed: int) -> None:
    """Without a barrier, a first layer whose parameters are back begins while others are still on their way."""
    made = layers(random.Random(seed))
    made = replace(made, sizes=(1, *(9 + size for size in made.sizes[1:])))
    run = simulate(POLICIES["p3"](made.job(), link()), link(), steps=2)
    begun = min(int(run.starts(row, 1).min()) for row in run.laid.rows if row.kind == "F")
    assert begun < max(int(run.ends(row, 0).max()) for row in operations(run))


@given(SEEDS, NAMES, st.sampled_from(["all-reduce", "push-pull"]))
def test_nothing_uses_a_payload_that_has_not_come(seed: int, name: str, op: str) -> None:
    """A piece starts when all that it carries is made; a layer's forward begins when all pieces with a byte of it ended."""
    job, run = run_of(name, layers(random.Random(seed)), op=op)
    carriers = {payload.name: each for each in rewritten(job) for payload in each.payloads}
    rows = {row.name: row for row in run.laid.rows if row.what == "task"}
    for payload in job.payloads:
        carrier = carriers[payload.name]
        pieces = [piece for piece in range(carrier.pieces) if payload in carrier.carried(piece)]
        legs = [row for row in operations(run) if row.name == carrier.name]
        assert pieces
        assert all(row.count == carrier.pieces for row in legs)
        for step in range(STEPS):
            made = max(int(run.ends(rows[task], step).max()) for task in payload.producers)
            assert int(run.starts(legs[0], step)[pieces].min()) >= made
            for before, after in pairwise(legs):
                assert (run.starts(after, step) >= run.ends(before, step)).all()
            if step + 1 < STEPS:
                used = int(run.starts(rows[f"F.{payload.name}"], step + 1).min())
                assert used >= int(run.ends(legs[-1], step)[pieces].max())


@given(SEEDS, NAMES, st.sampled_from(["all-reduce", "push-pull"]))
def test_no_permitted_operation_waits_beside_an_idle_queue(seed: int, name: str, op: str) -> None:
    """Work conservation: while something is ready and not started, its queue has something under way."""
    _, run = run_of(name, layers(random.Random(seed)), op=op)
    for queue in range(len(run.laid.flat.queues.window)):
        if run.laid.flat.queues.strict[queue]:
            continue
        passed = sent(run, queue)
        busy: list[list[int]] = []
        for _, start, end, _ in passed:
            if busy and start <= busy[-1][1]:
                busy[-1][1] = max(busy[-1][1], end)
            else:
                busy.append([start, end])
        for ready, start, _, _ in passed:
            assert start == ready or any(begin <= ready and start <= end for begin, end in busy)


@given(SEEDS, NAMES, st.sampled_from(["all-reduce", "push-pull"]))
def test_windows_are_never_exceeded(seed: int, name: str, op: str) -> None:
    """In flight: at most the window, a blocking queue one operation more, and more than a window only for one alone."""
    _, run = run_of(name, layers(random.Random(seed)), op=op)
    flat = run.laid.flat
    for queue, window in enumerate(flat.queues.window):
        if flat.queues.strict[queue]:
            continue
        passed = sent(run, queue)
        under_way: list[tuple[int, float]] = []
        for _, start, end, at in passed:
            under_way = [(until, size) for until, size in under_way if until > start]
            before = sum(size for _, size in under_way)
            if flat.queues.blocking[queue]:
                assert before < window
            else:
                assert before == 0 or before + flat.size[at] <= window
            under_way.append((end, float(flat.size[at])))


@given(SEEDS, st.sampled_from(["p3", "bytescheduler", "pace", "tictac"]))
def test_nothing_more_urgent_waits_when_something_starts(seed: int, name: str) -> None:
    _, run = run_of(name, layers(random.Random(seed)))
    flat = run.laid.flat
    for queue in range(len(flat.queues.window)):
        if flat.queues.strict[queue]:
            continue
        passed = sent(run, queue)
        for ready, start, _, at in passed:
            for others, begins, _, other in passed:
                if others < start < begins and ready <= start:
                    assert flat.key[other] >= flat.key[at]


@given(SEEDS, NAMES, st.sampled_from(["all-reduce", "push-pull"]))
def test_no_run_is_shorter_than_its_bounds(seed: int, name: str, op: str) -> None:
    """At least the chain of compute, at least what each queue and each stream has to do."""
    made = layers(random.Random(seed))
    _, run = run_of(name, made, op=op)
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
    made = layers(random.Random(seed))
    costs = LinkCosts(1.0, 0.05, ring=True) if name != "poseidon" else link(2.0)
    job = POLICIES[name](on_mesh(made.job()), costs)
    folded, whole = (simulate(job, costs, steps=STEPS, slowdowns={1: 1.5}, folded=each) for each in (True, False))
    assert len(folded.laid.cells) < len(whole.laid.cells) == 6
    cell_of = folded.laid.cells.cell_of
    one, other = _ends(folded), _ends(whole)
    for (task, rank), ends in other.items():
        assert np.array_equal(ends, one[task, int(cell_of[rank])]), (task, rank)
    assert folded.step_s == whole.step_s


def _ends(run: JobRun) -> dict[tuple[str, int], np.ndarray]:
    """Return the ends of every task, by cell."""
    return {
        (row.name, row.cells[0]): np.concatenate([run.ends(row, step) for step in range(STEPS)])
        for row in run.laid.rows
        if row.what == "task"
    }


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_rank_issues_the_same_operations_in_the_same_order(name: str) -> None:
    """Ranks of a group have one order, and with a static, agreed or indexed order both groups have the same one."""
    made = layers(random.Random(7), most=8)
    costs = link()
    job = POLICIES[name](on_mesh(made.job()), costs)
    run = simulate(job, costs, steps=STEPS, slowdowns={0: 1.3, 3: 0.8}, folded=False)
    orders: dict[int, list[tuple[int, int, str, int]]] = defaultdict(list)
    for row in operations(run):
        for step in range(STEPS):
            for piece, start in enumerate(run.starts(row, step).tolist()):
                for cell in row.cells:
                    orders[cell].append((start, step, row.name, piece))
    assert set(orders) == set(range(6))
    for group in ((0, 2, 4), (1, 3, 5)):
        assert len({tuple(sorted(orders[cell])) for cell in group}) == 1
    if job.policy.agreement == "index":
        names = {cell: [name for _, _, name, _ in sorted(order)] for cell, order in orders.items()}
        assert len({tuple(each) for each in names.values()}) == 1


def test_buckets_start_in_the_order_of_their_index_whatever_is_ready_first() -> None:
    """What a second stream makes early, but is listed last, waits for those before it where operations go by index."""
    job = Layers((1, 1, 1), (1, 1, 1), (5, 5, 5)).job()
    tasks = tuple(replace(task, stream="side") if task.name == "B.layer0" else task for task in job.tasks)
    job = replace(job, tasks=tasks, edges=tuple(edge for edge in job.edges if edge.dst != "B.layer0"))
    order = {}
    for agreement in ("index", "program"):
        each = job.with_policy("test", queue=Queue(), agreement=agreement, boundary="barrier")
        run = simulate(each, link(), steps=1)
        order[agreement] = [row.name for row in sorted(operations(run), key=lambda row: int(run.starts(row, 0)[0]))]
    assert order["index"] == ["layer2", "layer1", "layer0"]
    assert order["program"] == ["layer0", "layer2", "layer1"]


@given(SEEDS)
def test_a_random_order_is_drawn_anew_and_repeats_with_its_seed(seed: int) -> None:
    job = Layers((1,) * 12, (0,) * 12, (3,) * 12).job().with_policy(
        "drawn", queue=Queue(random=seed), boundary="barrier"
    )  # fmt: skip
    runs = [simulate(job, link(), steps=2) for _ in range(2)]
    assert runs[0].times.start.tolist() == runs[1].times.start.tolist()
    orders = [
        [row.name for row in sorted(operations(runs[0]), key=lambda row, at=step: int(runs[0].starts(row, at)[0]))]  # type: ignore[misc]
        for step in range(2)
    ]
    assert orders[0] != orders[1]


def test_a_rewrite_that_does_not_exist_is_named() -> None:
    from ringwright.errors import UsageError

    job = Layers((1,), (1,), (1,)).job().with_policy("odd", rewrites=(Rewrite("melt"),))
    with pytest.raises(UsageError, match="'melt' is no rewrite"):
        simulate(job, link())
