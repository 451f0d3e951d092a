"""TriRace: classes by deadline, gates where links are shared, what the links of a batch allow, the same weights."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import ringwright
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.graph.algebra import RULES
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import WorkloadError
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model.stages import LinkCosts, seconds
from ringwright.model.validity.workloads import check
from ringwright.model.values import PARTIAL, SLICED, Placement, Value, Work
from ringwright.model.workload import Edge, Gate, Mesh, Payload, RankClass, Task, Workload
from ringwright.schedulers.decompose.multidimensional_scheduling import (
    link_seconds,
    multidimensional_scheduling,
    slack_s,
    urgencies,
)
from ringwright_lab.contracts.scheduling_laws import STEPS, Scheduled, in_time, one_order, urgent
from ringwright_lab.papers.figures import multidimensional_scheduling as figures

LINK = LinkCosts(1e9, ring=True)
SMALL = figures.AsyncPipeline(2, 4, 1)


def small(rows_mib: float = 1.0) -> Workload:
    return figures.two_versions(0.5, 8.0, rows_mib, SMALL)


def test_what_is_due_first_goes_first() -> None:
    """Rows of the next look-up, then gradients by slack, then rows that are due a batch later."""
    step = small()
    made = multidimensional_scheduling(step, LINK)
    keys = made.policy.queue.keys if made.policy.queue else {}
    listed = sorted(keys, key=lambda name: keys[name])
    assert (listed[0], listed[-1]) == ("next rows", "other rows")
    slack = [slack_s(step, LINK, step.payload[name]) for name in listed[1:-1]]
    assert slack == sorted(slack)
    assert set(keys) == {each.name for each in step.payloads if each.op != "send-recv"}


def test_slack_is_what_two_versions_leave() -> None:
    """Of the last stage a batch less the sum's own time; the first ends its backward passes a micro-batch later."""
    step = figures.two_versions(0.5, 8.0, 0.0, SMALL)
    sum_s = seconds(LINK, "all-reduce", 4 << 20, tuple(range(4)))
    slot_s = figures.FORWARD_S + figures.BACKWARD_S
    assert slack_s(step, LINK, step.payload["dense1.0"]) == pytest.approx(SMALL.work_s - sum_s)
    assert slack_s(step, LINK, step.payload["dense0.0"]) == pytest.approx(SMALL.work_s - slot_s - sum_s)


@pytest.mark.parametrize(("apart", "exclusive"), [(False, True), (False, False), (True, True)])
def test_gates_stand_where_classes_share_a_link(apart: bool, exclusive: bool) -> None:
    made = multidimensional_scheduling(small(0.0), figures.costs(apart=apart), exclusive=exclusive)
    gates = made.policy.queue.gates if made.policy.queue else ()
    wanted = (Gate(2, 1), Gate(2, 1, "running"), *((Gate(1, 2, "running"),) if exclusive else ()))
    assert gates == (() if apart else wanted)
    assert any(("share no link" if apart else "do not use it together") in each for each in made.assumptions)


def test_nothing_starts_while_the_other_class_uses_its_link() -> None:
    made = multidimensional_scheduling(small(), LINK, block_mb=0.5)
    run = simulate(made, LINK, steps=6)
    spans: dict[str, list[tuple[int, int]]] = {"pp": [], "sums": []}
    for row in run.laid.rows:
        if row.what == "operation" and 0 in {run.laid.rank_classes.of.index("stage0")} & set(row.rank_classes):
            for at in range(6):
                mine = zip(run.starts(row, at).tolist(), run.ends(row, at).tolist(), strict=True)
                spans["pp" if row.role == "pp" else "sums"] += mine
    assert all(end <= begin or stop <= start for start, end in spans["pp"] for begin, stop in spans["sums"])
    sums = sorted(spans["sums"])
    assert all(before[1] <= after[0] or before == after for before, after in itertools.pairwise(sums))


def test_the_laws_of_scheduling() -> None:
    step = small()
    made = multidimensional_scheduling(step, LINK, block_mb=1.0)
    assert check(made, warnings=False) == []
    each = Scheduled(step, made, LINK, simulate(made, LINK, steps=STEPS))
    assert [law(each) for law in (in_time, one_order)] == [None, None]
    assert "declined" in (urgent(each) or "declined")
    assert multidimensional_scheduling(step, LINK, block_mb=1.0) == made


def test_links_are_busy_for_the_sum_of_what_uses_them() -> None:
    step = figures.two_versions(0.5, 8.0, 0.0, SMALL)
    message_s, dense_s = 0.5 * (1 << 20) / 1e9, 2 * 3 / 4 * 8 * (1 << 20) / 1e9
    busy = link_seconds(step, LINK)
    assert busy[0, "link.tx"] == pytest.approx(dense_s + 4 * message_s)
    assert busy[0, "link.rx"] == pytest.approx(dense_s + 4 * message_s)


def versions() -> Workload:
    """Return two stages and two replicas with values: forward reads the parameters of two steps before (two versions)."""
    elements, tasks, edges, payloads, values = 12, [], [], [], []
    for stage in range(2):
        of = f"stage{stage}"

        def value(
            name: str, *layout: Placement, kind: str = "activation", per: str = "micro-batch", of: str = of
        ) -> str:
            values.append(Value(name, of, 4 * elements, (("n", elements),), layout, kind, per))
            return name

        weights = value(f"w{stage}", kind="parameter", per="step")
        given = value(f"x{stage}", Placement("dp", SLICED, "n"))
        out, gradient = (
            value(f"y{stage}", Placement("dp", SLICED, "n")),
            value(f"g{stage}", Placement("dp", PARTIAL), per="step", kind="gradient"),
        )
        total = value(f"s{stage}", per="step", kind="gradient")
        tasks += [
            Task(
                f"F{stage}", of, "F", 1.0, slot=("F", 0), reads=((given, 0), (weights, 2)), writes=(out,), work=Work()
            ),
            Task(
                f"B{stage}",
                of,
                "B",
                2.0,
                slot=("B", 0),
                reads=((out, 0), (weights, 2)),
                writes=(gradient,),
                work=Work(),
            ),
            Task(
                f"U{stage}",
                of,
                "U",
                0.0,
                per="step",
                slot=("U", 0),
                reads=((weights, 1), (total, 0)),
                writes=(weights,),
                work=Work(),
            ),
        ]
        edges += [
            Edge(f"F{stage}", f"B{stage}"),
            Edge(f"U{stage}", f"F{stage}", 2),
            Edge(f"U{stage}", f"B{stage}", 2),
            Edge(f"U{stage}", f"U{stage}", 1),
        ]
        payloads.append(
            Payload(
                f"dense{stage}",
                of,
                "all-reduce",
                4 * elements,
                ("dp",),
                "dp",
                (f"B{stage}",),
                ((f"U{stage}", 0),),
                source=gradient,
                result=total,
            )
        )
    payloads.append(
        Payload(
            "hand on",
            "stage0",
            "send-recv",
            4,
            (),
            "pp",
            ("F0",),
            (("F1", 0),),
            "micro-batch",
            peer="stage1",
            source="y0",
            result="x1",
        )
    )
    classes = (RankClass("stage0", {"pp": 0}), RankClass("stage1", {"pp": 1}))
    mesh = Mesh((("dp", 2), ("pp", 2)))
    return Workload(
        "versions", mesh, classes, tuple(tasks), tuple(edges), tuple(payloads), micro_batches=2, values=tuple(values)
    )


def test_weights_are_the_same_to_the_bit() -> None:
    """Order, gates and blocks change none; blocks are what ``cut`` makes of a sum, on every rank, over several batches."""
    step = versions()
    assert check(step, warnings=False) == []
    made = multidimensional_scheduling(step, LINK)
    blocks = RULES["cut"](made, "dense0", dim="n", parts=3)
    assert len(blocks.payloads) == len(step.payloads) + 2
    proof = prove(step, blocks, draws=2)
    assert proof.equal
    assert {"w0", "w1"} <= set(proof.compared)
    wrong = replace(
        step,
        tasks=tuple(
            replace(t, reads=tuple((n, 1) if n.startswith("w") else (n, d) for n, d in t.reads)) for t in step.tasks
        ),
    )
    assert not prove(step, wrong, draws=1).equal  # one version: other weights


@pytest.mark.parametrize("parallel", ["pp2,dp4", "tp2,sp,pp2,dp2"])
def test_a_generated_step_on_a_machine(parallel: str) -> None:
    step = ringwright.job("gpt3-125m", gpus=8, parallel=parallel, micro_batches=4)
    costs = on_fabric(fabric("dgx-h100:1"), step)
    made = multidimensional_scheduling(step, costs)
    assert simulate(made, costs, steps=4).step_s <= simulate(step, costs, steps=4).step_s * 1.01
    dense = step.gradients()
    assert sorted(urgencies(step, costs, dense).values()) == list(range(len(dense)))


@pytest.mark.parametrize(("parallel", "says"), [("dp4", "stages that send"), ("pp4", "gradients that replicas add up")])
def test_a_job_without_one_of_the_classes_is_declined(parallel: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says) as caught:
        multidimensional_scheduling(ringwright.job("gpt3-125m", gpus=4, parallel=parallel), LINK)
    assert "pp4,dp2" in (caught.value.remedy or "")


def test_smaller_blocks_keep_messages_waiting_less() -> None:
    waits = [figures.longest_wait_blocks(mib) * mib for mib in (16.0, 4.0, 1.0)]
    assert np.all(np.diff(waits) < 0)
    assert figures.batch_s(figures.SharedLinkSetup("fifo")) > 2 * figures.batch_s(figures.SharedLinkSetup())
