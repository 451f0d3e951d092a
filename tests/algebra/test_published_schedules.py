"""What the literature says of schedules, from rules alone: breadth-first pipelines, DeAR, the looped CollectiveEinsum.

The closed forms are derived beside each test; no system is written for any of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import algebra_cases as cases
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.graph.algebra import RULES
from ringwright.graph.algebra.account import totals, wire_bytes
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model.rewrites import operations
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Edge, Gate, Mesh, Payload, Queue, RankClass, Task, Workload
from ringwright.workloads.chain import ChainLayer, chain

PS = 1e12
FREE = LinkCosts(1e30)


# --------------------------------------------------------------------------------------- breadth-first pipelines
def pipeline(p: int, m: int, v: int) -> Workload:
    """p devices, v stages each, stage s on device s mod p; forward takes a second, backward two."""
    tasks, edges, payloads = [], [], []
    stages = p * v
    for s in range(stages):
        of = f"d{s % p}"
        tasks.append(Task(f"F{s}", of, "F", 1.0, slot=("F", s // p)))
        tasks.append(Task(f"B{s}", of, "B", 2.0, slot=("B", s // p)))
    for s in range(stages):
        for kind, to in (("F", s + 1), ("B", s - 1)):
            if not 0 <= to < stages:
                continue
            src, dst = f"{kind}{s}", f"{kind}{to}"
            if s % p == to % p:
                edges.append(Edge(src, dst))
            else:
                payloads.append(
                    Payload(
                        f"{src}->{dst}",
                        f"d{s % p}",
                        "send-recv",
                        1,
                        (),
                        "pp",
                        (src,),
                        ((dst, 0),),
                        "micro-batch",
                        peer=f"d{to % p}",
                    )
                )
        if s == stages - 1:
            edges.append(Edge(f"F{s}", f"B{s}"))
    classes = tuple(RankClass(f"d{at}", {"pp": at}) for at in range(p))
    return Workload(
        "pipeline", Mesh((("pp", p),)), classes, tuple(tasks), tuple(edges), tuple(payloads), micro_batches=m
    )


@pytest.mark.parametrize(
    ("p", "m", "v", "makespan"), [(4, 4, 2, 33), (4, 8, 2, 57), (8, 8, 4, 117), (8, 16, 4, 213), (8, 32, 4, 405)]
)
def test_breadth_first_pipelines_take_what_the_schedule_says(p: int, m: int, v: int, makespan: int) -> None:
    """Source: Lamy-Poirier, MLSys 2023: the order alone gives 3 m v + 3 (p - 1), a stage's forward pass as the unit.

    Each device runs every stage for all micro-batches before its next stage, forward, then backward from the last.
    """
    step = pipeline(p, m, v)
    for r in range(p):
        order = [(f"F{c * p + r}", i) for c in range(v) for i in range(m)]
        order += [(f"B{c * p + r}", i) for c in reversed(range(v)) for i in range(m)]
        step = RULES["order"](step, f"d{r}", tasks=order)
    assert check(step, warnings=False) == []
    run = simulate(step, FREE, steps=1)
    assert run.finished(0) / PS == pytest.approx(makespan)


# --------------------------------------------------------------------------------------------------------- DeAR
LAYERS = 40


def data_parallel(all_reduce_s: float, p: int = 4) -> tuple[Workload, LinkCosts]:
    """Forward takes 1 s, backward 2 s, over equal layers; all gradients together take ``all_reduce_s``."""
    size = 1 << 20
    step = chain("job", [ChainLayer(1 / LAYERS, 2 / LAYERS, size) for _ in range(LAYERS)], ranks=p)
    return step, LinkCosts(size * LAYERS * 2 * (p - 1) / p / all_reduce_s, ring=True)


def dear(step: Workload) -> Workload:
    """Two rules a layer, and an order: scatters first, then gathers in the order of the forward pass, one at a time."""
    for at in range(LAYERS):
        step = RULES["split-all-reduce"](step, f"layer{at}")
        step = RULES["next-step"](step, f"layer{at}.gather", through=f"U.layer{at}")
    payloads = [replace(each, role="rs" if each.op == "reduce-scatter" else "ag") for each in step.payloads]
    keys = {f"layer{at}.gather": at for at in range(LAYERS)} | {f"layer{at}.scatter": -at for at in range(LAYERS)}
    gates = (Gate(2, 1, "waiting"), Gate(2, 1, "running"), Gate(1, 2, "running"))
    queue = Queue(keys=keys, traffic={"rs": 1, "ag": 2}, gates=gates)
    return replace(step, payloads=tuple(payloads)).with_policy("dear", queue=queue)


def steady(step: Workload, costs: LinkCosts) -> float:
    run = simulate(step, costs, steps=20)
    return (run.finished(18) - run.finished(8)) / 10 / PS


def test_dear_gains_what_its_pipelining_can() -> None:
    """Source: Zhang et al., ICDCS 2023. Wait-free: t_ff + t_bp / L + t_AR. DeAR: t_bp / L + t_RS + t_AG + t_ff / L.

    The first scatter waits for a layer's backward pass, the last layer's forward pass for the last gather: 5.05 s and 4.075 s.
    """
    step, costs = data_parallel(4.0)
    before, after = steady(step, costs), steady(dear(step), costs)
    assert before == pytest.approx(1 + 2 / LAYERS + 4)
    assert after == pytest.approx(4 + 3 / LAYERS)
    assert before / after == pytest.approx(1.239, abs=1e-3)


def test_dear_that_never_idles_gains_more_where_communication_is_shorter() -> None:
    """With t_AR = 3 t_ff a barrier between scatters and gathers gives 4 / 3.5; gathers that begin at once, almost 4 / 3."""
    step, costs = data_parallel(3.0)
    assert steady(step, costs) / steady(dear(step), costs) == pytest.approx(1.30, abs=0.01)


def test_dear_moves_no_byte_more() -> None:
    step, _ = data_parallel(4.0)
    after = dear(step)
    assert totals(after).wire_bytes["rs"] + totals(after).wire_bytes["ag"] == pytest.approx(
        totals(step).wire_bytes["dp"]
    )


# ------------------------------------------------------------------------------------------------- looped einsum
@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("share", [0.25, 1.0, 4.0])
def test_a_looped_product_takes_its_ideal_time(p: int, share: float) -> None:
    """Source: Wang et al., ASPLOS 2023: p products of C / p, the longer of a product and a shift between them: C / p + (p - 1) max.

    ``share`` is a shift's time in products. Before: the gather, then the product.
    """
    step = cases.gathered_product(p)
    product_s = 1.0 / p
    shift_s = share * product_s
    size = step.payload["whole"].size_bytes // p
    costs = LinkCosts(size / shift_s, ring=True)
    serial = 1.0 + 1.0 + (p - 1) * shift_s + 1.0  # the task before, the gather, the product; the one behind
    looped = 1.0 + product_s + (p - 1) * max(product_s, shift_s) + 1.0
    assert ends(step, costs) == pytest.approx(serial)
    assert ends(RULES["loop-gather"](step, "y"), costs) == pytest.approx(looped)


def ends(step: Workload, costs: LinkCosts) -> float:
    return simulate(step, costs, steps=1).finished(0) / PS


# ------------------------------------------------------------------------------------- what the engine lays out
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_the_engine_sends_what_the_rules_declare(case: cases.Case) -> None:
    """Bytes and operations are counted on what the engine lays out, not on the graph."""
    p = max(case.sizes)
    before = after = case.make(p)
    for rule, at, knobs in case.rules:
        after = RULES[rule](after, at, **knobs)
    old, new = (sent(each) for each in (before, after))
    for role in {*old, *new}:
        declared = sum(each.change.wire_bytes.get(role, 0.0) for each in after.applied)
        assert new.get(role, (0, 0))[0] - old.get(role, (0, 0))[0] == pytest.approx(declared, abs=1e-6)
    operations = sum(count for _, count in new.values()) - sum(count for _, count in old.values())
    assert operations == sum(each.change.operations for each in after.applied)


def sent(step: Workload) -> dict[str, tuple[float, int]]:
    """Return bytes on the wire and operations by role of a laid-out step, of the first rank."""
    laid = simulate(step, LinkCosts(1e9), steps=1).laid
    counted: dict[str, tuple[float, int]] = {}
    by_name = {each.name: each for each in laid.operations}
    for row in laid.rows:
        if row.what == "operation":
            operation = by_name[row.name]
            payload = operation.payloads[0]
            size, count = counted.get(row.role, (0.0, 0))
            wire = wire_bytes(payload, step.mesh.extent(payload.axes)) * row.count
            counted[row.role] = size + wire, count + row.count
    return counted


def test_an_exchange_with_a_rank_further_on_takes_its_longer_way() -> None:
    """On a ring of eight, blocks for the rank opposite share each link with three others, those for the next with none."""
    step = RULES["pairwise-all-to-all"](cases.all_to_all(8), "y")
    payloads = tuple(replace(each, size_bytes=1 << 24) for each in step.payloads)
    costs = on_fabric(fabric("torus:8"), step)
    seconds_of = {
        each.payloads[0].hops: costs.stages(each.asked, each.size_bytes, tuple(range(8)), "tp")[0].wire_s
        for each in operations(replace(step, payloads=payloads))
    }
    assert seconds_of[1] == pytest.approx(seconds_of[7])
    assert seconds_of[2] == pytest.approx(2 * seconds_of[1], rel=0.02)
    assert seconds_of[4] > 1.9 * seconds_of[2] * 0.95
