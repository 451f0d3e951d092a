"""Schedulers as functions from Workload to Workload: what each sets, how they compose, what contradicts itself."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest

from ringwright.costs.nic import NicCosts
from ringwright.engines.job.run import simulate
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.rewrites import operations
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import PARTS, Queue, Rewrite, Workload
from ringwright.schedulers.compose import compose
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.schedulers.fifo.poseidon import best_scheme, poseidon
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.order import released, tails
from ringwright.schedulers.priority._fusion import preemptive
from ringwright.schedulers.priority._listing import relisted
from ringwright.schedulers.priority._tictac import TransferGraph, tac, tic
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.schedulers.priority.p3 import p3
from ringwright.schedulers.priority.pace import pace
from ringwright.schedulers.priority.tictac import tictac
from ringwright.workloads.layers import layerwise, measured
from ringwright.workloads.models import model
from ringwright_lab.contracts import small_jobs
from ringwright_lab.papers.figures import tictac as figures
from scheduled_jobs import POLICIES, Layers, layers, link, units


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_scheduler_changes_the_policy_alone_and_signs_it(name: str) -> None:
    job = layers(random.Random(1)).job()
    made = POLICIES[name](job, link())
    assert replace(made, policy=job.policy, assumptions=job.assumptions) == job
    assert set(made.policy.by) <= set(PARTS)
    assert made.policy.by
    assert made == POLICIES[name](job, link()), "the same answer twice"


def test_the_outer_scheduler_replaces_what_it_sets_and_leaves_the_rest() -> None:
    def later(workload: Workload, _costs: Costs) -> Workload:
        return workload.with_policy("later", boundary="barrier")

    made = compose(later, POLICIES["bytescheduler"])(layers(random.Random(2)).job(), link())
    assert made.policy.boundary == "barrier"
    assert made.policy.queue == POLICIES["bytescheduler"](layers(random.Random(2)).job(), link()).policy.queue
    assert made.policy.by["boundary"] == "later"
    assert made.policy.by["queue"] == "bytescheduler"
    assert made.policy.label == "later+bytescheduler"


def test_buckets_by_index_and_an_order_by_urgency_contradict() -> None:
    def urgent(workload: Workload, _costs: Costs) -> Workload:
        return workload.with_policy("urgent", queue=Queue(keys={"layer0": 0}))

    with pytest.raises(UsageError, match="pytorch-ddp"):
        compose(urgent, pytorch_ddp)(layers(random.Random(3)).job(), link())


def test_factors_of_fused_gradients_are_refused() -> None:
    def swapped(workload: Workload, _costs: Costs) -> Workload:
        fuse, factors = Rewrite("fuse", settings={"caps_bytes": [99]}), Rewrite("substitute", settings={"names": []})
        return workload.with_policy("swapped", rewrites=(fuse, factors))

    with pytest.raises(UsageError, match="factors"):
        compose(swapped, poseidon)(layers(random.Random(4)).job(), link())


@pytest.mark.parametrize(
    ("scheduler", "knobs"),
    [(poseidon, {"scheme": "odd"}), (gradientflow, {"share": 0}), (pace, {"fusion": "odd"}), (tictac, {"mode": "odd"})],
)
def test_knobs_that_cannot_be_are_refused(scheduler: object, knobs: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        scheduler(layers(random.Random(5)).job(), link(), **knobs)  # type: ignore[operator]


# ------------------------------------------------------------------------------------------------------------- Poseidon
@pytest.mark.parametrize("seed", range(50))
def test_factors_are_chosen_where_they_are_fewer_values(seed: int) -> None:
    draw = random.Random(seed)
    rows, columns, batch, p = draw.randint(1, 9000), draw.randint(1, 9000), draw.randint(1, 400), draw.randint(2, 64)
    by_factors, by_server = batch * (p - 1) * (rows + columns), rows * columns * (2 * p - 2) / p
    assert (best_scheme(rows, columns, batch, p, p) == "factors") == (by_factors <= by_server)


def test_poseidon_takes_the_samples_that_the_job_says() -> None:
    """A layer of 2 x 3 on 2 ranks: K 5 (2 + 3) values against 6 by server; two micro-batches of 8 samples are 16."""
    job = Layers((1,), (1,), (600,)).job(2, op="push-pull")
    job = replace(job, payloads=tuple(replace(each, factors=(20, 30), samples=5) for each in job.payloads))
    asked = [operations(poseidon(job, link(), batch=batch))[0] for batch in (0, 5, 32)]
    assert [each.op for each in asked] == ["factors", "factors", "push-pull"]
    assert asked[0].size_bytes == asked[1].size_bytes
    said = [poseidon(each, link()).assumptions[-1] for each in (job, Layers((1,), (1,), (6,)).job(2, op="push-pull"))]
    assert said[0] == "poseidon: factors for 1 of 1 linear layers at batch=5 a rank (the job's)"
    assert said[1].endswith("at batch=32 a rank (the paper's, the job says none)")
    step = model_job.workload(model_job.GeneratedJobSpec(WorkloadSpec("vgg16", 8, None, 2, 8)))
    assert {each.samples for each in step.payloads if each.factors} == {16}
    assert "at batch=16 a rank (the job's)" in poseidon(step, link()).assumptions[-1]


@pytest.mark.parametrize("op", ["all-reduce", "push-pull"])
def test_p3_says_what_it_is_without_a_server(op: str) -> None:
    job = Layers((2, 2), (2, 2), (3, 6)).job(2, op=op)
    said = [each for each in p3(job, link()).assumptions if each.startswith("p3: ")]
    assert [each for each in said if "no server" in each] == said[: op == "all-reduce"]
    assert len(said) == (op == "all-reduce")


def test_factors_travel_to_every_other_machine() -> None:
    """A layer of 2 x 3 and a batch of 5 sends 5 (2 + 3) values to each of 3 others, instead of its 6 values by server."""
    job = Layers((1,), (1,), (6,)).job(4, op="push-pull")
    (dense,) = operations(poseidon(job, link(), scheme="dense", batch=5))
    (factors,) = operations(poseidon(job, link(), scheme="factors", batch=5))
    costs = NicCosts(1.0)
    assert seconds(costs, dense.op, dense.size_bytes, (0, 1, 2, 3)) == pytest.approx(2 * 3 / 4 * 6)
    assert factors.size_bytes == 5 * (2 + 3)
    assert seconds(costs, factors.op, factors.size_bytes, (0, 1, 2, 3)) == pytest.approx(3 * 25)


# --------------------------------------------------------------------------------------------------------------- TicTac
@pytest.mark.parametrize("seed", range(60))
def test_tac_is_optimal_on_chains_and_both_are_orders_of_all_transfers(seed: int) -> None:
    made = figures.instance(1000 + seed, chain=True)
    for found in (tac(made.graph), tic(made.graph)):
        assert set(found) == set(made.transfers)
    keys = tac(made.graph)
    assert sorted(keys.values()) == list(range(len(made.transfers)))
    best = min(figures.makespans(made, list(permutations(made.transfers))))
    assert figures.makespans(made, [sorted(made.transfers, key=lambda each: keys[each])]) == [best]


def test_tic_on_a_chain_is_the_order_of_use_up_to_the_first_two() -> None:
    names = [f"r{at}" for at in range(5)]
    tasks = {f"c{at}": 1.0 for at in range(5)}
    before = {f"c{at}": {f"c{at - 1}"} if at else set() for at in range(5)}
    graph = TransferGraph(dict.fromkeys(names, 1.0), tasks, {f"c{at}": {f"r{at}"} for at in range(5)}, before)
    keys = tic(graph)
    assert [keys[name] for name in names] == [0, 0, 1, 2, 3]  # the first two are used by one task together


def test_the_engine_agrees_with_the_makespan_of_a_graph() -> None:
    """ResNet-50's inference in TAC order: the last forward task ends when the two-machine schedule says."""
    job = figures.resnet("inference")
    costs = figures.ReadCosts(sum(payload.size_bytes for payload in job.payloads) / 0.1)
    run = simulate(tictac(job, costs), costs, steps=1)
    arrived = seconds(costs, "pull", sum(payload.size_bytes for payload in job.payloads), (0,))
    assert arrived <= run.finished(0) / 1e12 <= arrived + 0.1


# --------------------------------------------------------------------------------------------------- chains from models
def test_layers_of_a_model_share_out_its_step() -> None:
    job = layerwise(model("vgg16"), 0.3, 4)
    assert sum(task.seconds for task in job.tasks) == pytest.approx(0.3)
    assert sum(task.seconds for task in job.tasks if task.kind == "F") == pytest.approx(0.1)
    assert sum(payload.elements for payload in job.payloads) == 138_357_544
    assert job.payload["linear0.linear"].factors == (4096, 25088)
    each = layerwise(model("vgg16"), 0.3, 4, each="tensor")
    assert len(each.payloads) == 2 * len(job.payloads) == 32
    assert sum(task.seconds for task in each.tasks) == pytest.approx(0.3)


def test_a_matrix_at_both_ends_is_one_payload_that_both_wait_for() -> None:
    job = layerwise(model("transformer"), 0.1)
    words = job.payload["embedding.words"]
    waiting = {edge.dst for edge in job.edges if edge.src == words.consumers[0][0] and edge.distance == 1}
    assert waiting == {"F.embedding.words", "F.logits.words"}


def forward_edges(job: Workload) -> dict[str, set[str]]:
    """Return what each forward task waits for among forward tasks."""
    forward = {task.name for task in job.tasks if task.kind == "F"}
    return {name: {e.src for e in job.edges if e.dst == name and e.src in forward} for name in forward}


def test_a_short_cut_runs_beside_its_block() -> None:
    waits = forward_edges(layerwise(model("resnet50"), 0.1, branches=True))
    assert waits["F.stage1.0.short"] == waits["F.stage1.0.narrow"] == {"F.stage0.2.widen_norm"}
    assert waits["F.stage1.1.narrow"] == {"F.stage1.0.widen_norm", "F.stage1.0.short_norm"}
    assert sum(len(each) == 2 for each in waits.values()) == 4  # after each block whose short cut has parameters


def test_branches_of_an_inception_meet_in_the_next_block() -> None:
    job = layerwise(model("inception-v3"), 0.1, branches=True)
    waits = forward_edges(job)
    ends = {f"F.35a.norm{at}" for at in (0, 2, 5, 6)}
    assert all(waits[f"F.35b.convolution{at}"] == ends for at in (0, 1, 3, 6))
    assert waits["F.35b.convolution2"] == {"F.35b.norm1"}
    assert waits["F.aux.convolution0"] == waits["F.17to8.convolution0"], "the auxiliary head holds up backward alone"
    assert ("F.aux.head", "B.head.head") in {(edge.src, edge.dst) for edge in job.edges}


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "inception-v3", "transformer"])
@pytest.mark.parametrize("each", ["layer", "tensor"])
def test_branches_have_one_beginning_and_hold_up_all_of_backward(name: str, each: str) -> None:
    job = layerwise(model(name), 0.1, each=each, branches=True)
    waits = forward_edges(job)
    assert sum(not before for before in waits.values()) == 1
    used = {edge.src for edge in job.edges}
    assert all(task in used for task in waits)
    assert simulate(job, link(1e9), steps=2).step_s >= 0.1 - 1e-9
    straight = layerwise(model(name), 0.1, each=each)
    assert name in ("resnet50", "inception-v3") or set(straight.edges) == set(job.edges)


def test_measured_gaps_become_release_times() -> None:
    job = measured("log", (1.0, 2.0, 3.0), (10, 20, 30), 6.0)
    run = simulate(job.with_policy("fifo", queue=Queue()), link(1e6), steps=1)
    ends = [int(run.ends(row, 0)[0]) / 1e12 for row in run.laid.rows if row.kind == "B"]
    assert ends == [7.0, 9.0, 12.0]
    assert [payload.size_bytes for payload in job.gradients()] == [10, 20, 30]


@pytest.mark.parametrize(
    "build",
    [
        lambda: layerwise(model("vgg16"), -1.0),
        lambda: layerwise(model("vgg16"), 1.0, each="byte"),
        lambda: layerwise(model("vgg16"), 1.0, forward_share=1.0),
        lambda: measured("log", (1.0,), (1, 2), 1.0),
        lambda: measured("log", (), (), 1.0),
    ],
)
def test_chains_that_cannot_be_are_refused(build: object) -> None:
    with pytest.raises(UsageError):
        build()  # type: ignore[operator]


def test_units_are_what_knobs_take() -> None:
    (operation, *_) = operations(bytescheduler(Layers((1,), (1,), (9,)).job(), link(), partition_mb=units(4)))
    assert operation.sizes() == (4, 1)


# ----------------------------------------------------------------------------------------------------------------- PACE
def branching(seed: int) -> Workload:
    """Return a random step of up to six layers whose forward branches."""
    return small_jobs.branching(random.Random(seed))


def value(job: Workload) -> float:
    """Return when forward ends under the optimal sending, on a link of one byte a second."""
    ready, rest = released(job), tails(job)
    return preemptive([(ready[p.name], p.size_bytes, rest[p.name]) for p in job.payloads])


def every_order(job: Workload) -> float:
    """Return the least value over every possible order of forward."""
    forward = [task for task in job.tasks if task.kind == "F"]
    before = {task.name: {e.src for e in job.edges if e.dst == task.name and e.distance == 0} for task in forward}
    found = []
    for order in permutations(forward):
        names = [task.name for task in order]
        if all(before[name] <= set(names[:at]) for at, name in enumerate(names)):
            found.append(value(replace(job, tasks=(*order, *job.tasks[len(forward) :]))))
    return min(found)


def test_forward_that_branches_is_listed_by_what_is_back() -> None:
    """Never worse than the order listed, sometimes better, and near the best of all orders."""
    ratios, better = [], 0
    for seed in range(60):
        job = branching(seed)
        found = relisted(job, lambda payload: float(payload.size_bytes))
        assert sorted(task.name for task in found.tasks) == sorted(task.name for task in job.tasks)
        assert value(found) <= value(job) + 1e-9
        better += value(found) < value(job) - 1e-9
        ratios.append(value(found) / every_order(job))
        simulate(pace(job, link(), slice_mb=units(2)), link())  # an order that contradicts an edge would stop
    assert better >= 1
    assert sum(ratios) / len(ratios) <= 1.02


def test_a_chain_and_what_edges_do_not_describe_keep_their_order() -> None:
    job = layers(random.Random(1)).job()
    assert relisted(job, lambda payload: float(payload.size_bytes)) == job
    loose = replace(job, edges=())
    assert relisted(loose, lambda payload: float(payload.size_bytes)) == loose
