"""Lina: one priority queue a device, work by chunks, packed experts, plans of inference; then two real ranks."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from patience import HANG_S
from ringwright.cli import main
from ringwright.costs.nodes import NodeCosts
from ringwright.engines.job.run import JobRun, simulate
from ringwright.ground.documents import read_json
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.jobs import model_job, rows, study
from ringwright.jobs.job_document import JobSteps
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model import registry
from ringwright.model.rewrites import operations
from ringwright.model.stages import LinkCosts, seconds
from ringwright.model.workload import RankClass, Resource, Workload
from ringwright.reports.steps import jobs as reports
from ringwright.schedulers.priority.lina import lina, priority
from ringwright.schedulers.priority.lina._chunks import pipelined
from ringwright.schedulers.priority.lina._memory import held_bytes
from ringwright.schedulers.priority.lina._packing import chosen, packed
from ringwright.schedulers.priority.lina.placement import MOST_EXPERTS, ExpertPlacement, layer_tokens, place, quotas
from ringwright.schedulers.priority.lina.popularity import decide_again, most_wanted, profile
from ringwright.workloads.moe_chain import MoeLayer, moe_chain

MIB = 1 << 20
LINK = LinkCosts(float(MIB), ring=True)  # one MiB/s


def drawn(seed: int, *, replicas: int = 2) -> Workload:
    """Return a random chain of two to four layers in which gradients of both kinds meet all-to-alls."""
    draw = random.Random(seed)
    layers = [
        MoeLayer(
            draw.uniform(0.1, 4),
            draw.uniform(0.1, 4),
            draw.uniform(0.1, 1),
            draw.randint(1, 6 * MIB),
            tuple(draw.randint(4, 6 * MIB) for _ in range(draw.randint(1, 3))),
            draw.randint(4, 9 * MIB),
        )
        for _ in range(draw.randint(2, 4))
    ]
    return moe_chain(f"drawn {seed}", layers, 4, replicas=replicas, micro_batches=draw.randint(1, 2))


def sent(run: JobRun) -> Iterator[tuple[str, frozenset[int], int, int, int]]:
    """Yield (role, cells, ready, start, end) of every micro-op of every step."""
    for row, step in itertools.product(run.laid.rows, range(run.laid.steps)):
        if row.what == "operation":
            span = run.span(row, step)
            for times in zip(run.times.ready[span], run.times.start[span], run.times.end[span], strict=True):
                yield row.role, frozenset(row.rank_classes), *(int(time) for time in times)


def combining(run: JobRun) -> Iterator[tuple[int, int, int]]:
    """Yield (cell, start, end) of every backward task that combines."""
    for row, step in itertools.product(run.laid.rows, range(run.laid.steps)):
        if row.name.startswith("B.combine"):
            for start, end in zip(run.starts(row, step), run.ends(row, step), strict=True):
                yield row.rank_classes[0], int(start), int(end)


# ------------------------------------------------------------------------------------------------------------- training
@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_one_priority_queue_a_device(seed: int, *, folded: bool) -> None:
    """Every rule of the paper, read off the times: one on its way, tokens first, then in the order of getting ready."""
    workload = lina(drawn(seed), LINK, partition_mb=1.5, packing=1 + seed % 2)
    slow = {} if folded else {1: 1.3, 6: 1.1}  # ranks that are late keep all-to-alls of their group waiting
    run = simulate(workload, LINK, steps=2, folded=folded, slowdowns=slow)
    operations, busy = list(sent(run)), list(combining(run))
    assert {role for role, *_ in operations} == {"ep", "dp", "edp"}
    for role, cells, ready, start, end in operations:
        for other, theirs, was_ready, started, ended in operations:
            if cells.isdisjoint(theirs) or (start, end, was_ready) == (started, ended, ready):
                continue
            assert end <= started or ended <= start  # never two on their way
            if role != "ep" and other == "ep":
                assert not was_ready <= start < ended  # no gradient while an all-to-all waits or runs
            if (role == "ep") == (other == "ep") and ready < was_ready:
                assert start < started  # within a class, whose queue it may be
        if role != "ep":
            assert not any(cell in cells and begun <= start < done for cell, begun, done in busy)


@pytest.mark.parametrize("native", [True, False])
def test_two_queues_of_a_class_go_in_the_order_of_getting_ready(*, native: bool) -> None:
    """Without the gate of the class by itself, the queue of the lower number passes what was ready earlier."""
    layer = MoeLayer(1.0, 1.0, 0.1, 4, (8 * MIB, 8 * MIB), 8 * MIB)
    workload = moe_chain("two queues", [layer] * 2, 2, replicas=2)
    without = tuple(gate for gate in priority().gates if gate.closed != gate.by or gate.state != "waiting")
    orders = []
    for queue in (priority(), replace(priority(), gates=without)):
        run = simulate(workload.with_policy("x", queue=queue), LINK, steps=1, native=native)
        rows = [row for row in run.laid.rows if row.role in ("dp", "edp")]
        began = sorted((int(run.starts(row, 0)[0]), row.name) for row in rows)
        orders.append([name for _, name in began])
    asked = ["experts1", "dense1.0", "dense1.1", "experts0", "dense0.0", "dense0.1"]  # as backward makes them
    assert orders[0] == asked
    assert sorted(orders[1]) == sorted(asked)
    assert orders[1] != asked


@pytest.mark.parametrize("seed", range(6))
def test_all_gradients_come_before_the_update_and_folding_changes_nothing(seed: int) -> None:
    workload = lina(drawn(seed), LINK, partition_mb=2)
    runs = [simulate(workload, LINK, folded=folded) for folded in (True, False)]
    assert runs[0].step_s == runs[1].step_s
    for run, step in itertools.product(runs, range(4)):
        rows = run.laid.rows
        gradients = max(int(run.ends(row, step).max()) for row in rows if row.role in ("dp", "edp"))
        updates = min(int(run.starts(row, step).min()) for row in rows if row.kind == "U")
        assert gradients <= updates
    again = simulate(lina(drawn(seed), LINK, partition_mb=2), LINK)
    assert np.array_equal(again.times.end, runs[0].times.end)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size_bytes", [MIB // 3, MIB, 100 * MIB])
def test_chunks_hold_the_same_bytes_and_work(seed: int, size_bytes: int) -> None:
    before, after = drawn(seed), pipelined(drawn(seed), size_bytes)
    assert sum(t.seconds for t in after.tasks) == pytest.approx(sum(t.seconds for t in before.tasks))
    for quantity in ("size_bytes", "elements"):
        assert sum(getattr(p, quantity) for p in after.payloads) == sum(getattr(p, quantity) for p in before.payloads)
    assert all(p.size_bytes <= size_bytes for p in after.payloads if p.role == "ep")
    assert {e.src for e in after.edges} | {e.dst for e in after.edges} <= set(after.task)
    assert {n for p in after.payloads for n in (*p.producers, *(c for c, _ in p.consumers))} <= set(after.task)
    if size_bytes == 100 * MIB:
        assert after == before


def test_pieces_are_equal() -> None:
    """Four bytes apart at most, and as many as whole micro-ops would be."""
    for size in (100, 63, 64, 65, 4 * MIB + 4):
        workload = lina(moe_chain("sizes", [MoeLayer(1.0, 1.0, 1.0, 4, (size,))], 2), LINK, partition_mb=32 / MIB)
        (gradient,) = (each for each in operations(workload) if each.role == "dp")
        whole, last = gradient.sizes()
        assert gradient.pieces == -(-size // 32)
        assert last <= whole <= 32
        assert whole * (gradient.pieces - 1) + last == size
        assert whole - size / gradient.pieces < 4


def test_an_expert_chunk_starts_with_its_tokens() -> None:
    """Four chunks of an all-to-all of 4 s and expert work of 2 s: the work of the last begins when it is in."""
    workload = moe_chain("pipeline", [MoeLayer(1.0, 2.0, 1.0, 8 * MIB)], 2)
    run = simulate(lina(workload, LINK, partition_mb=2), LINK, steps=1)
    starts = {row.name: int(run.starts(row, 0)[0]) / 1e12 for row in run.laid.rows}
    assert [starts[f"F.experts0#{at}"] for at in range(4)] == [2, 3, 4, 5]
    assert [starts[f"F.dense0-experts#{at}"] for at in range(4)] == [1, 2, 3, 4]
    assert [starts[f"F.experts0-combine#{at}"] for at in range(4)] == [5, 6, 7, 8]  # tokens out were ready before
    assert starts["F.combine0"] == 9


def test_counts_of_tokens_are_not_cut() -> None:
    workload = moe_chain("counts", [MoeLayer(1.0, 2.0, 1.0, 8 * MIB)], 2)
    tokens = workload.payload["F.dense0-experts"]
    counts = replace(tokens, name="counts", op="all-gather", size_bytes=8)
    made = lina(replace(workload, payloads=(*workload.payloads, counts)), LINK, partition_mb=2)
    assert made.payload["counts"].size_bytes == 8
    assert [name for name, _ in made.payload["counts"].consumers] == [f"F.experts0#{at}" for at in range(4)]


def test_what_backward_takes_and_gives_back_is_not_multiplied() -> None:
    workload = moe_chain("tokens", [MoeLayer(1.0, 2.0, 1.0, 8 * MIB)], 2)
    demands = (("memory", 3.0), ("memory", -3.0), ("tiles", 10.0))
    tasks = tuple(replace(task, demands=demands) if task.tag == "experts" else task for task in workload.tasks)
    made = [task.demands for task in pipelined(replace(workload, tasks=tasks), 3 * MIB).tasks if "#" in task.name]
    assert made[:3] == [(("memory", 3.0), ("tiles", 4.0)), (("tiles", 4.0),), (("memory", -3.0), ("tiles", 4.0))]


def test_packing_makes_copies() -> None:
    workload = moe_chain("packed", [MoeLayer(1.0, 1.0, 1.0, MIB, (MIB,), 3 * MIB)], 8, replicas=2)
    made = packed(workload, 4)
    assert made.mesh.axes == (("dp", 2), ("epx", 4), ("ep", 2))
    assert made.payload["experts0"].size_bytes == 12 * MIB
    assert made.mesh.group(made.payload["experts0"].axes, 1) == (1, 3, 5, 7, 9, 11, 13, 15)
    assert made.mesh.group(made.payload["dense0.0"].axes, 3) == tuple(range(16))
    assert made.mesh.group(made.payload["F.dense0-experts"].axes, 3) == (2, 3)
    assert made.payload["F.dense0-experts"].size_bytes == MIB
    placed = packed(replace(workload, classes=tuple(RankClass(str(at), {"ep": at}) for at in range(8))), 4)
    assert [each.at for each in placed.classes][5] == {"epx": 2, "ep": 1}
    with pytest.raises(UsageError, match="do not divide 8"):
        packed(workload, 3)
    bare = moe_chain("bare", [MoeLayer(1.0, 1.0, 1.0, MIB)], 8)
    assert chosen(bare, LINK, MIB).factor == 1
    with pytest.raises(UsageError, match="no gradients"):
        packed(bare, 2)


@pytest.mark.parametrize(("experts_s", "factor"), [(0.9, 1), (0.8, 2), (0.6, 4), (0.2, 8)])
def test_packing_stops_where_work_outlasts_tokens(experts_s: float, factor: int) -> None:
    """A MiB takes 7/8, 3/4, 1/2 and 0 s among 8, 4, 2 and 1 ranks."""
    workload = moe_chain("rule", [MoeLayer(1.0, experts_s, 1.0, 2 * MIB, (), MIB)], 8)
    workload = replace(
        workload,
        tasks=tuple(replace(t, seconds=2 * experts_s) if t.tag == "experts" else t for t in workload.tasks),
    )
    assert chosen(workload, LINK, MIB).factor == factor
    assert lina(workload, LINK, partition_mb=1).mesh.sizes.get("epx", 1) == factor


def test_a_device_gets_no_more_experts_than_it_holds() -> None:
    """3 MiB of gradients are 0.75 Mi numbers: 18 bytes each, 14 besides their gradient; two layers' experts hold 28.3 MB."""
    layer = MoeLayer(1.0, 0.1, 1.0, 2 * MIB, (MIB,), 3 * MIB)
    workload = moe_chain("memory", [layer] * 2, 8, replicas=2)
    dense, experts = 2 * MIB / 4 * 18, 2 * 3 * MIB / 4 * 18
    assert held_bytes(workload, 1, experts="edp") == dense + experts
    assert held_bytes(workload, 4, experts="edp") == dense + 4 * experts
    assert chosen(workload, LINK, MIB).factor == 8
    for factor in (1, 2, 4):
        device = Resource("memory", "tokens", (dense + factor * experts) / 0.8 + 1)
        known = replace(workload, resources=(*workload.resources, device))
        made = lina(known, LINK, partition_mb=1)
        assert made.mesh.sizes.get("epx", 1) == factor
        said = [each for each in made.assumptions if each.startswith("lina: ")]
        assert said[0].startswith(f"lina: packing={factor}: {2 * factor} times the experts hold 0.")
        with pytest.raises(InfeasibleError, match=f"{2 * factor} times the experts are 0.. GB"):
            lina(known, LINK, partition_mb=1, packing=2 * factor)
        assert lina(known, LINK, partition_mb=1, memory_gb=80).mesh.sizes["epx"] == 8
    assert "as asked" in lina(workload, LINK, packing=2).assumptions[-1]


def test_a_generated_job_keeps_its_experts_in_memory() -> None:
    """Of Qwen3's 128 experts a device that had 16 by the rule would hold 654 GB; an H100 has 80 GB."""
    asked = model_job.GeneratedJobSpec(WorkloadSpec("qwen3-235b-a22b", 256, "ep128"))
    job = model_job.workload(asked)
    assert {each.name: each.capacity for each in job.resources}["memory"] == 80e9
    made = lina(job, NodeCosts(400e9, 8, 450e9))
    assert "epx" not in made.mesh.sizes
    assert made.assumptions[-1] == "lina: packing=1: 2 times the experts hold 207.8 GB, a device 64.0 GB"
    unknown = replace(job, resources=job.resources[:1])
    assert lina(unknown, NodeCosts(400e9, 8, 450e9)).mesh.sizes["epx"] > 1


def test_what_a_policy_decided_is_shown() -> None:
    workload = replace(moe_chain("shown", [MoeLayer(1.0, 0.1, 1.0, 2 * MIB, (MIB,), MIB)], 8), assumptions=("a",))
    found = rows.document(study.Job(workload, LINK, assumptions=("a",)), ["none", "lina:partition_mb=1"])
    assert [row["decided"] for row in found["rows"]] == [
        [],
        ["lina: packing=8: no more of them divide 8 ranks"],
    ]
    out = io.StringIO()
    reports.write(read_json(JobSteps, found), out, width=120)
    assert "Decided by the policies\n  lina: packing=8: no more" in out.getvalue()


def test_states_that_are_shared_out_are_held_and_updated_in_part() -> None:
    """With zero1 twice the experts have twice the ranks that share their states: the update takes no longer."""
    workload = moe_chain("zero", [MoeLayer(1.0, 1.0, 1.0, MIB, (), 4 * MIB)], 8, replicas=2)
    updates = {"U.layer0": 3.0}
    workload = replace(
        workload,
        tasks=tuple(replace(each, seconds=updates.get(each.name, each.seconds)) for each in workload.tasks),
        payloads=tuple(
            replace(each, op="reduce-scatter") if each.role == "edp" else each for each in workload.payloads
        ),
    )
    assert packed(workload, 2).task["U.layer0"].seconds == 3.0
    assert held_bytes(workload, 1, experts="edp") == MIB * (2 + 4 + 12 / 2)
    assert held_bytes(workload, 4, experts="edp") == 4 * MIB * (2 + 4 + 12 / 8)
    whole = replace(workload, payloads=tuple(replace(each, op="all-reduce") for each in workload.payloads))
    assert packed(whole, 2).task["U.layer0"].seconds == 6.0


def test_inference_is_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """Popular experts on more devices: near even tokens; without a plan the fullest device has 2.5 times its share."""
    plans = ["lina", *(f"lina:skew=5.56:plan={plan}" for plan in ("even", "estimate", "again", "exact"))]
    words = ["simulate", "--model", "mixtral-8x7b", "--gpus", "8", "--parallel", "ep8", "--json", "--policy"]
    assert main([*words, ",".join(plans), "--mode", "prefill"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    usual, even, estimate, again, exact = (row["step_us"] for row in rows)
    assert usual < exact <= again < estimate < even
    assert again < 1.1 * usual < 2 * usual < even
    assert "plan=again: 32 layers take 1.0" in rows[3]["decided"][0]
    assert main([*words, "lina:skew=5.56"]) == 2
    assert "this job trains" in capsys.readouterr().err
    assert main([*words, "lina:skew=5.56:accuracy=1:plan=estimate,lina:skew=5.56:seed=3", "--mode", "decode"]) == 0


def test_lina_is_listed() -> None:
    system = registry.find("lina", registry.schedulers)
    assert set(system.headings) == set(registry.HEADINGS)
    label, scheduler = registry.scheduler("lina:partition_mb=2:packing=1")
    made = scheduler(drawn(1), LINK)
    assert (label, made.policy.label, "epx" in made.mesh.sizes) == ("lina:partition_mb=2:packing=1", "lina", False)
    with pytest.raises(UsageError, match="micro-ops of 0 MiB"):
        lina(drawn(1), LINK, partition_mb=0)


def test_no_layers_and_no_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="no layers"):
        moe_chain("none", [], 2)
    with pytest.raises(UsageError, match="nothing is exchanged"):
        moe_chain("alone", [MoeLayer(1.0, 1.0, 1.0, 4)], 1)


def test_nodes_behind_cards() -> None:
    costs = NodeCosts(4.0, 4, inside=8.0)
    ranks = tuple(range(16))
    assert seconds(costs, "all-to-all", 16, ranks) == 12 * 4 / 4  # four ranks send 12 each through one card
    assert seconds(costs, "all-to-all", 16, ranks[:8]) == 8 * 4 / 4
    assert seconds(costs, "all-to-all", 16, ranks[:4]) == 12 / 8  # stays inside
    assert seconds(costs, "all-reduce", 16, ranks) == 2 * 15 / 16 * 16 / 4  # one ring crosses each card once
    assert seconds(costs, "all-reduce", 16, (0, 4)) == 16 * 4 / 4  # four such pairs side by side
    assert costs.stages("all-to-all", 16, ranks[:4], "ep")[0].loads == (("node", 1.0),)
    assert seconds(costs, "all-reduce", 16, (3,)) == 0


# ------------------------------------------------------------------------------------------------------------- inference
def shares_of(draw: random.Random, experts: int) -> list[float]:
    weights = [draw.expovariate(1) if draw.random() < 0.8 else 0.0 for _ in range(experts)]
    weights[draw.randrange(experts)] += 0.1
    return [each / sum(weights) * draw.choice((1.0, 0.9)) for each in weights]


@pytest.mark.parametrize("seed", range(60))
def test_devices_and_tokens_add_up(seed: int) -> None:
    draw = random.Random(seed)
    devices = draw.randint(1, 16)
    shares = shares_of(draw, draw.randint(1, MOST_EXPERTS * devices))
    plan = place(shares, devices, seed=seed)
    assert plan == place(shares, devices, seed=seed)
    assert sum(plan.given(len(shares))) == pytest.approx(devices)
    assert all(plan.copies(expert) for expert in range(len(shares)))
    assert all(1 <= len(device) <= MOST_EXPERTS for device in plan.devices)
    tokens = [draw.randint(0, 900) for _ in shares]
    divided = quotas(plan, tokens)
    assert [sum(parts.values()) for parts in divided] == tokens
    assert all(
        set(parts) <= set(plan.copies(e)) and min(parts.values(), default=0) >= 0 for e, parts in enumerate(divided)
    )
    assert layer_tokens(plan, tokens) >= -(-sum(tokens) // devices)


@pytest.mark.parametrize("seed", range(40))
def test_quotas_are_as_even_as_copies_allow(seed: int) -> None:
    """Some set of experts can go nowhere else: the most tokens per device of any such set is a bound that is met."""
    draw = random.Random(seed)
    experts, devices = draw.randint(1, 6), draw.randint(1, 5)
    held = [draw.sample(range(devices), draw.randint(1, devices)) for _ in range(experts)]
    plan = ExpertPlacement(tuple({e: 1.0 for e in range(experts) if at in held[e]} for at in range(devices)))
    tokens = [draw.randint(0, 50) for _ in range(experts)]
    bound = 0
    for size in range(1, experts + 1):
        for group in itertools.combinations(range(experts), size):
            where = {at for expert in group for at in held[expert]}
            bound = max(bound, -(-sum(tokens[expert] for expert in group) // len(where)))
    assert layer_tokens(plan, tokens) == bound


def test_a_popular_expert_gets_devices_and_small_ones_share() -> None:
    plan = place([0.5, 0.2, 0.15, 0.15], 4)
    assert plan.given(4) == pytest.approx([2.0, 0.8, 0.6, 0.6])
    assert layer_tokens(plan, [50, 20, 15, 15]) == 25
    unknown = place([0.75, 0.0], 4)
    assert unknown.copies(1) == [3]  # on the device left free
    assert unknown.copies(0) == [0, 1, 2]
    with pytest.raises(UsageError, match="9 experts do not fit on 2"):
        place([1 / 9] * 9, 2)
    with pytest.raises(UsageError, match="expert 1 is on no device"):
        quotas(ExpertPlacement(({0: 1.0},)), [3, 4])


def test_popularity_follows_paths() -> None:
    """Tokens go from expert e to e + 1; a fifth of those on expert 0 stay."""
    rows = [[(first + at) % 4 for at in range(5)] for first in range(4) for _ in range(10)]
    rows += [[0, 0, 0, 0, 0]] * 5 + [[0, 0, 0, 0, 1]] * 15
    known = profile(np.array(rows), 4, length=2, keep=1)
    now = np.array([[0, 1]] * 3 + [[3, 0]])
    assert known.shares(1, now).tolist() == [0, 0.25, 0.75, 0]
    assert known.shares(3, np.array([[0, 0]])).tolist() == [0, 0.75, 0, 0]  # the likeliest alone is kept
    assert profile(np.array(rows), 4, length=2, keep=2).shares(3, np.array([[0, 0]])).tolist() == [0.25, 0.75, 0, 0]
    assert known.shares(1, np.array([[2, 0]])).sum() == 0  # never seen
    for length in (0, 5):
        with pytest.raises(UsageError, match="cannot be followed"):
            profile(np.array(rows), 4, length=length)
    with pytest.raises(UsageError, match="outside 0 to 2"):
        profile(np.array(rows), 3)


def test_the_second_phase_looks_at_the_most_wanted_only() -> None:
    assert most_wanted(np.array([0.1, 0.4, 0.4, 0.1])) == {1, 2}
    assert not decide_again(np.array([0.5, 0.3, 0.2, 0.0]), np.array([30, 50, 0, 20]))
    assert decide_again(np.array([0.5, 0.3, 0.2, 0.0]), np.array([50, 20, 30, 0]))
    assert not decide_again(np.array([0.5, 0.3, 0.2, 0.0]), np.array([5, 2, 3, 4]), gate=2)


# ------------------------------------------------------------------------------------------------------------- real ranks


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_two_real_ranks(tmp_path: Path) -> None:
    """Gradients are bitwise those of plain all-reduce, tokens arrive, no gradient starts before tokens that wait."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    program = Path(__file__).parents[1] / "lina_ranks.py"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), port, str(tmp_path)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=HANG_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)
    found = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert found[0]["order"] == found[1]["order"]
    assert all(each["gradients_equal"] and each["tokens_equal"] for each in found)
    order = found[0]["order"]
    assert len({name for name, *_ in order}) == len(order) == found[0]["micro_ops"] == 3 * (2 * 2 + 8)
    assert not [name for name, of, _, waiting in order if of == 2 and waiting]
    passed = [
        t for at, (t, of, place, _) in enumerate(order) if of == 1 and any(place > p for *_, p, _ in order[at + 1 :])
    ]
    assert passed  # tokens that were ready after gradients and sent before them
