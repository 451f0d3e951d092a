"""DualPipe, fed from both ends: its passes, its bubble as published and as sent at once, what it holds, models laid out in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate, product

import pytest

from ringwright.engines.job.run import simulate
from ringwright.formats.exports.pipeline_csv import as_csv
from ringwright.graph.algebra.equality import small
from ringwright.graph.algebra.meaning import carry_out
from ringwright.graph.memory import memory
from ringwright.graph.pipelines import Slot, order
from ringwright.graph.pipelines.stages import stages_of
from ringwright.ground.errors import UsageError
from ringwright.jobs.explained.pipeline_picture import picture
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Edge, Task, Workload
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain
from ringwright_lab.papers.figures.pipelines import UnitCosts

PS, FREE = 1e12, LinkCosts(1e30)
UNEVEN = StageTimes(2.0, 3.0, 1.0)
SIZES = [(4, 8), (4, 12), (8, 16), (8, 20)]


def passes_s(times: StageTimes) -> float:
    """Return what all passes of a stage take for one micro-batch."""
    return times.forward_s + times.inputs_s + times.weights_s


# ------------------------------------------------------------------------------------------------------------- orders
@pytest.mark.parametrize(("p", "m"), [(2, 4), *SIZES])
def test_each_device_takes_half_of_the_micro_batches_from_each_end(p: int, m: int) -> None:
    for device in range(p):
        slots = order("dualpipe", p, device, m)
        wide = Counter(slot for each in slots for slot in (_halves(each) if each[0] == "B" else [each]))
        assert wide == Counter(product("FIW", (0, 1), range(m // 2)))
        assert slots == order("dualpipe", p, p - 1 - device, m), "opposite devices do the same"


def _halves(slot: Slot) -> list[Slot]:
    return [("I", *slot[1:]), ("W", *slot[1:])]


def test_a_device_of_eight_goes_through_the_eight_published_phases() -> None:
    """Device 1 of 8, 20 micro-batches: by hand from the published phases, whose lengths are 4, 2, 2, 4, 2, 2, 2, 2."""
    warm = "F0 F0 F0 F0 F0 F1 F0 F1 I1 W1 F1 I1 W1 F1"
    turns = "F0 B1 F1 B0 " * 4 + "B1 F1 B0 " * 2
    out = "B1 B0 I1 I0 W1 I0 W0 I0 W0 W0"
    names = [f"{phase}{chunk}" for phase, chunk, _ in order("dualpipe", 8, 1, 20)]
    assert " ".join(names) == f"{warm} {turns.strip()} {out}"


@pytest.mark.parametrize("p", [2, 4, 8])
def test_it_holds_one_micro_batch_more_than_the_pipeline_is_long(p: int) -> None:
    levels = (
        max(accumulate({"F": 1, "I": 0}.get(phase, -1) for phase, _, _ in order("dualpipe", p, device, 3 * p)))
        for device in range(p)
    )
    assert max(levels) == p + 1


# ------------------------------------------------------------------------------------------------------------ bubbles
@pytest.mark.parametrize(("p", "m"), [(2, 4), *SIZES])
def test_it_is_legal_and_its_bubble_is_half_of_that_of_the_folded_half(p: int, m: int) -> None:
    """What is sent at once leaves (p/2 - 1)(F + I - W) where all take alike: that of DualPipeV on p/2 devices."""
    made = pipeline_chain(p, m, schedule="dualpipe", replicas=2, elements=8)
    assert check(made, warnings=False) == []
    folded = pipeline_chain(p // 2, m // 2, 2, schedule="dualpipe-v", replicas=2, elements=8)
    bubbles = [simulate(each, FREE, steps=5).lasted(4) / PS - 3 * m for each in (made, folded)]
    assert bubbles == [p // 2 - 1, p // 2 - 1]
    assert simulate(made, FREE, steps=1).finished(0) / PS == 3 * m + p // 2 - 1


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("times", [StageTimes(), UNEVEN])
@pytest.mark.parametrize("native", [True, False])
def test_the_engine_takes_the_published_bubble_where_pairs_end_together(
    p: int, m: int, times: StageTimes, native: bool
) -> None:
    """(PP/2 - 1)(F&B + B - 3W), DeepSeek-V3's Table 2, on the engine: a pair begins with its later half and ends as one."""
    b, w = times.inputs_s + times.weights_s, times.weights_s
    published = (p / 2 - 1) * (times.forward_s + b + b - 3 * w)
    made = together(p, m, times)
    assert check(made, warnings=False) == []
    run = simulate(made, FREE, steps=4, native=native)
    assert run.finished(0) / PS - m * passes_s(times) == published
    assert run.lasted(3) / PS - m * passes_s(times) == published


def together(p: int, m: int, times: StageTimes) -> Workload:
    """Return a pipeline whose passes begin with a task that takes what is sent and end with one that sends, pair by pair."""
    made = pipeline_chain(p, m, schedule="dualpipe", times=times).without_values()
    tasks, edges = [*made.tasks], [*made.edges]
    for task in made.tasks:
        for what in "AS" if task.kind in ("F", "dO") else "":
            slot = f"{what}{task.name[0]}", task.slot[1]
            tasks.append(Task(f"{what}{task.name}", task.of, task.kind, layer=task.layer, slot=slot))
            edges.append(Edge(*(task.name, tasks[-1].name)[:: 1 if what == "S" else -1]))
    payloads = tuple(
        replace(
            each,
            producers=tuple(f"S{name}" for name in each.producers),
            consumers=tuple((f"A{name}", far) for name, far in each.consumers if name[0] in "FI"),
        )
        for each in made.payloads
    )
    orders = {each.name: _paired(order("dualpipe", p, at, m)) for at, each in enumerate(made.classes)}
    return replace(made, tasks=tuple(tasks), edges=tuple(edges), payloads=payloads, order=orders)


def _paired(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Return the slots of tasks: what passes take, they themselves, and what they send, the two of a pair together."""
    pairs: list[list[Slot]] = []
    for slot in slots:
        crosses = pairs and len(pairs[-1]) == 1 and pairs[-1][0][0] == "F" and pairs[-1][0][1] != slot[1]
        if slot[0] == "B" and crosses:
            pairs[-1].append(slot)
        else:
            pairs.append([slot])
    made: list[Slot] = []
    for pair in pairs:
        sends = [("F" if phase == "F" else "I", chunk, batch) for phase, chunk, batch in pair if phase != "W"]
        made += [(f"A{phase}", chunk, batch) for phase, chunk, batch in sends]
        for phase, chunk, batch in pair:
            made += [({"I": "B"}.get(phase, phase), chunk, batch)] + [("W", chunk, batch)] * (phase == "B")
        made += [(f"S{phase}", chunk, batch) for phase, chunk, batch in sends]
    return tuple(made)


@pytest.mark.parametrize("message_s", [0.0, 0.25, 0.5, 2.0])
def test_messages_that_take_longer_never_make_it_faster(message_s: float) -> None:
    made = pipeline_chain(8, 16, schedule="dualpipe", replicas=2, elements=480)
    times = [simulate(made, UnitCosts(1.0, each), steps=3).lasted(2) for each in (message_s, message_s + 0.1)]
    assert times[0] < times[1]


# ------------------------------------------------------------------------------------------------- two copies of the model
def test_two_copies_are_held_and_summed_and_each_device_of_a_pair_does_the_same() -> None:
    one, two = (
        pipeline_chain(8, 16, schedule=name, replicas=2, elements=16, message_bytes=100)
        for name in ("1f1b", "dualpipe")
    )
    assert {each.by_kind["parameter"] for each in memory(two)} == {2 * memory(one)[0].by_kind["parameter"]}
    assert two.mesh.axes == (("pp", 4), ("side", 2), ("dp", 2))
    assert {each.axes for each in two.payloads if each.role == "dp"} == {("side", "dp")}
    crossing = [(each.op, each.axes) for each in two.payloads if each.of == "device3" and each.op != "send-recv"]
    assert crossing.count(("shift", ("side",))) == 2, "the two devices of the middle swap what they made, both ways"
    assert stages_of(two, "test").sides == 2
    assert stages_of(one, "test").sides == 1
    assert carry_out(pipeline_chain(4, 8, schedule="dualpipe", replicas=2, elements=8)).held


@pytest.mark.parametrize("parallel", ["pp2", "pp4,dp2", "pp4,tp2,sp,zero1", "pp4,dp2,fsdp"])
def test_a_model_is_laid_out_in_it_and_computes_the_same(parallel: str) -> None:
    """Opposite devices hold the same layers; embedding and logits are one matrix on both devices of the ends."""
    spec = WorkloadSpec("gpt2-small", None, parallel, micro_batches=8)
    made = workload(GeneratedJobSpec(spec, schedule="dualpipe"))
    assert check(made, warnings=False) == []
    assert made.micro_batches == 4
    assert not [each for each in made.payloads if each.role == "embedding"]
    assert {each.axes[0] for each in made.gradients()} <= {"side"}
    plain = workload(GeneratedJobSpec(spec, schedule="1f1b"))
    assert made.mesh.size == plain.mesh.size
    assert sum(each.op in ("shift", "send-recv") for each in made.payloads if each.role == "pp") == 2 * (
        int(parallel[2]) - 1
    )
    own, others = (
        {each.name.split(".")[1] for each in job.values if each.kind == "parameter"} for job in (made, plain)
    )
    assert others - own == {"logits"}
    assert own <= others
    (little,) = small(made)
    assert carry_out(little).held


def test_experts_are_exchanged_within_a_side_and_their_gradients_summed_over_both() -> None:
    spec = WorkloadSpec("mixtral-8x7b", 32, "pp4,ep8", micro_batches=8)
    made = workload(GeneratedJobSpec(spec, schedule="dualpipe"))
    assert check(made, warnings=False) == []
    assert {each.axes for each in made.payloads if each.op == "all-to-all"} == {("ep",)}
    assert {each.axes for each in made.payloads if each.role == "edp"} == {("side",)}


def test_the_picture_has_both_sides() -> None:
    made = pipeline_chain(4, 12, schedule="dualpipe", replicas=2, elements=8)
    shown = picture(made, simulate(made, FREE, steps=4))
    assert shown is not None
    assert [each.of for each in shown.devices] == [f"device {at}" for at in range(4)]
    first = [[each[:3] for each in device.passes if each[0] == "F"] for device in shown.devices]
    assert [each[2] for each in first[0] if each[1] == 0] == [*range(6)]
    assert [each[2] for each in first[3] if each[1] == 0] == [*range(6, 12)]
    assert {each[2] for each in first[0]} == {each[2] for each in first[3]} == {*range(12)}


# ----------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("p", "m", "chunks", "remedy"),
    [(4, 7, 1, "--micro-batches 8"), (4, 6, 1, "--micro-batches 8"), (3, 12, 1, "pp4"), (4, 8, 2, "dualpipe-v")],
)
def test_what_it_is_not_made_for_says_what_to_type(p: int, m: int, chunks: int, remedy: str) -> None:
    with pytest.raises(UsageError) as refused:
        order("dualpipe", p, 0, m, chunks)
    assert remedy in str(refused.value.remedy)


def test_one_device_has_no_two_ends() -> None:
    with pytest.raises(UsageError, match="from 2 ends: 1 devices"):
        workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", 2, "dp2", micro_batches=4), schedule="dualpipe"))


def test_pytorch_is_told_no_order_of_it() -> None:
    with pytest.raises(UsageError, match="both ends"):
        as_csv(pipeline_chain(4, 8, schedule="dualpipe"))


def test_replicas_share_parameters_with_the_other_copy() -> None:
    with pytest.raises(UsageError, match="6 parameters over 4 replicas"):
        pipeline_chain(4, 8, schedule="dualpipe", replicas=2, elements=6)
