"""Pipeline schedules: every pass once and in a legal order, bubbles by their closed forms, micro-batches held, models laid out."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from ringwright.engines.job.run import simulate
from ringwright.formats.exports.pipeline_csv import as_csv
from ringwright.graph.algebra.equality import small
from ringwright.graph.algebra.meaning import carry_out
from ringwright.graph.memory import memory
from ringwright.graph.pipelines import SCHEDULES, Order, Shape, in_halves, order, schedule_of
from ringwright.ground.errors import UsageError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain
from ringwright_lab.papers.figures.pipelines import ELEMENTS, UnitCosts

PS, FREE = 1e12, LinkCosts(1e30)
CHUNKS = {"zb-v": 2, "dualpipe-v": 2, "breadth-first": 3, "aiao": 4}
UNEVEN = StageTimes(2.0, 3.0, 1.0)


def bubble(schedule: str, p: int, m: int, v: int, times: StageTimes) -> float:
    """Return the idle seconds of a steady step of a pipeline."""
    run = simulate(pipeline_chain(p, m, v, times=times, schedule=schedule), FREE, steps=5)
    return run.lasted(4) / PS - m * v * (times.forward_s + times.inputs_s + times.weights_s)


# ------------------------------------------------------------------------------------------------- two weight versions
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (4, 4), (4, 8), (8, 16)])
@pytest.mark.parametrize("native", [True, False])
def test_a_pipeline_that_is_never_emptied_has_no_bubble(p: int, m: int, native: bool) -> None:
    """PipeDream-2BW: from the second step on every device works all the time; the first one fills the pipeline."""
    made = pipeline_chain(p, m, schedule="2bw", replicas=2, elements=8)
    assert check(made, warnings=False) == []
    run = simulate(made, FREE, steps=6, native=native)
    assert [run.lasted(at) / PS for at in range(6)] == [3 * (m + p - 1), *[3 * m] * 5]


def test_its_sums_have_until_the_next_step_but_one() -> None:
    """Passes of step k + 2 read what step k left. On the first of p devices its last p - 1 backward passes run in step k + 1."""
    made = pipeline_chain(4, 8, schedule="2bw", replicas=2, elements=ELEMENTS)
    slack_s = 3 * (8 - 3)
    for sum_s in (10.0, 15.0, 18.0, 30.0):
        run = simulate(made, UnitCosts(sum_s), steps=8)
        assert run.step_s == pytest.approx(24 + max(0.0, sum_s - slack_s))
        assert run.steady


def test_two_versions_of_the_weights_are_held_and_as_many_activations_as_1f1b() -> None:
    plain, endless = (
        memory(pipeline_chain(4, 8, schedule=name, replicas=2, elements=8, message_bytes=100))
        for name in ("1f1b", "2bw")
    )
    assert [each.by_kind["parameter"] for each in endless] == [2 * each.by_kind["parameter"] for each in plain]
    assert [each.by_kind["activation"] for each in endless] == [each.by_kind["activation"] for each in plain]


def test_passes_read_the_weights_of_two_steps_before_and_updates_the_latest() -> None:
    made = pipeline_chain(2, 4, schedule="2bw", replicas=2, elements=8)
    distances = {task.kind: dict(task.reads).get("weights0") for task in made.tasks if "weights0" in dict(task.reads)}
    assert distances == {"F": 2, "B": 2, "U": 1}
    assert carry_out(made, steps=3).held
    model = workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", 4, "pp2,dp2", micro_batches=4), schedule="2bw"))
    assert check(model, warnings=False) == []
    (little,) = small(model)
    assert carry_out(little).held


def test_a_barrier_between_steps_is_still_one() -> None:
    """A policy with a barrier makes ranks wait for their updates behind the passes that were left over: legal, and slower."""
    made = pipeline_chain(4, 8, schedule="2bw", replicas=2, elements=8).with_policy("mine", boundary="barrier")
    assert check(made, warnings=False) == []
    costs = LinkCosts(32 / 6.0)
    assert simulate(made, costs, steps=6).lasted(5) > simulate(
        pipeline_chain(4, 8, schedule="2bw", replicas=2, elements=8), costs, steps=6
    ).lasted(5)


def test_sharded_parameters_have_no_second_version() -> None:
    with pytest.raises(UsageError, match="for each micro-batch"):
        pipeline_chain(2, 4, schedule="2bw", replicas=2, elements=8, sharded=True)
    with pytest.raises(UsageError, match="run in the next one"):
        as_csv(pipeline_chain(2, 4, schedule="2bw"))


def held(slots: Order) -> int:
    """Return how many micro-batches of a chunk a device holds at the most, from forward to the end of backward."""
    levels = itertools.accumulate({"F": 1, "I": 0}.get(phase, -1) for phase, _, _ in slots)
    return max(levels)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(2, 6), (4, 8), (4, 12), (8, 16)])
def test_every_pass_is_done_once_and_waits_for_no_one_behind_it(schedule: str, p: int, m: int) -> None:
    chunks, sides = CHUNKS.get(schedule, 1), schedule_of(schedule)[0].sides
    for device in range(p):
        halves = [(*slot[:2], slot[2] % m) for slot in in_halves(order(schedule, p, device, m, chunks))]
        assert Counter(halves) == Counter(itertools.product("FBW", range(chunks * sides), range(m // sides)))
    made = pipeline_chain(p, m, chunks, schedule=schedule, replicas=2, elements=8)
    assert check(made, warnings=False) == []


@pytest.mark.parametrize(
    ("p", "m", "v", "looped", "plain"),
    [(4, 4, 2, 33, 42), (4, 8, 2, 57, 66), (8, 8, 4, 117, 180), (8, 16, 4, 213, 276), (8, 32, 4, 405, 468)],
)
def test_loops_take_their_closed_form(p: int, m: int, v: int, looped: int, plain: int) -> None:
    """A loop's bubble is (p - 1)(f + b) of one of its v stages, in any group; without one it is v times as long."""
    for schedule in ("1f1b", "breadth-first", "aiao", f"breadth-first:{p}", f"breadth-first:{2 * p}"):
        run = simulate(pipeline_chain(p, m, v, schedule=schedule), FREE, steps=1)
        assert run.finished(0) / PS == looped == 3 * m * v + 3 * (p - 1)
    for schedule in ("1f1b", "gpipe"):
        whole = pipeline_chain(p, m, times=StageTimes(v, v, v), schedule=schedule)
        assert simulate(whole, FREE, steps=1).finished(0) / PS == plain


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("times", [StageTimes(), UNEVEN])
def test_bubbles_are_their_closed_forms(p: int, times: StageTimes) -> None:
    """1F1B (p-1)(F+I+W), ZB-H1 (p-1)(F+I-W), ZB-H2 (p-1)(F+I-2W): arXiv 2401.10241, Table 2, in steady steps."""
    f, i, w = times.forward_s, times.inputs_s, times.weights_s
    assert bubble("1f1b", p, 2 * p, 1, times) == (p - 1) * (f + i + w)
    assert bubble("zb-h1", p, 2 * p, 1, times) == (p - 1) * (f + i - w)
    assert bubble("zb-h2", p, 2 * p, 1, times) == (p - 1) * max(0, f + i - 2 * w)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_a_folded_pipeline_has_no_bubble_where_all_passes_take_alike(p: int) -> None:
    assert bubble("zb-v", p, 2 * p, 2, StageTimes()) == 0
    assert bubble("dualpipe-v", p, 2 * p, 2, StageTimes()) == p - 1


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "gpipe"])
def test_devices_hold_as_many_micro_batches_as_published(schedule: str, p: int) -> None:
    """ZB-H1 and ZB-V as many as 1F1B's first device, H2 2p - 1, DualPipe one more than its pipeline is long (of half a device)."""
    chunks, m = CHUNKS.get(schedule, 1), 3 * p
    most = max(held(order(schedule, p, device, m, chunks)) for device in range(p))
    assert most == {"zb-h2": 2 * p - 1, "zb-v": 2 * p, "dualpipe-v": 2 * p + 1, "gpipe": m}.get(schedule, p)


def test_memory_of_a_stage_follows_its_order() -> None:
    made = pipeline_chain(4, 8, message_bytes=100)
    kept = [each.by_kind["activation"] for each in memory(made)]
    assert kept[0] > kept[1] > kept[2] > kept[3]
    first = {s: memory(pipeline_chain(4, 8, schedule=s, message_bytes=100))[0].peak_bytes for s in ("1f1b", "zb-h2")}
    assert first["zb-h2"] > 1.4 * first["1f1b"]


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 12), (8, 24)])
@pytest.mark.parametrize("times", [StageTimes(), UNEVEN])
def test_dualpipe_takes_the_bubble_of_its_table(p: int, m: int, times: StageTimes) -> None:
    """(PP/2 - 1)(F&B + B - 3W), where forward and backward that run beside each other end together; PP/2 folded devices."""
    pairs = {device: _paired(order("dualpipe-v", p, device, m, 2)) for device in range(p)}
    f, b, w = times.forward_s, times.inputs_s + times.weights_s, times.weights_s
    assert _ends(Shape(p, m, 2, folded=True), pairs, times) - 2 * m * (f + b) == (p - 1) * (f + b + b - 3 * w)


def _paired(slots: Order) -> list[Order]:
    """Return an order whose forward passes run beside the backward pass behind them, where that is of the other direction."""
    pairs: list[Order] = []
    for slot in slots:
        before = pairs[-1] if pairs else ()
        if slot[0] == "B" and len(before) == 1 and before[0][0] == "F" and before[0][1] != slot[1]:
            pairs[-1] = (*before, slot)
        else:
            pairs.append((slot,))
    return pairs


def _ends(shape: Shape, pairs: dict[int, list[Order]], times: StageTimes) -> float:
    """Return when the last device ends: what runs in a pair begins with the later and ends together."""
    takes = {"F": times.forward_s, "I": times.inputs_s, "W": times.weights_s, "B": times.inputs_s + times.weights_s}
    ends: dict[tuple[str, int, int], float] = {}
    now, left = dict.fromkeys(pairs, 0.0), {device: list(each) for device, each in pairs.items()}
    while any(left.values()):
        before = sum(map(len, left.values()))
        for device, several in left.items():
            while several and all(need in ends for slot in several[0] for need in _needs(shape, device, slot)):
                pair = several.pop(0)
                begin = max([now[device], *(ends[need] for slot in pair for need in _needs(shape, device, slot))])
                now[device] = begin + sum(takes[phase] for phase, _, _ in pair)
                for phase, chunk, batch in pair:
                    ends["G" if phase in "BI" else phase, shape.stage(device, chunk), batch] = now[device]
        assert sum(map(len, left.values())) < before, "every device waits for another one"
    return max(now.values())


def _needs(shape: Shape, device: int, slot: tuple[str, int, int]) -> list[tuple[str, int, int]]:
    phase, chunk, batch = slot
    stage = shape.stage(device, chunk)
    if phase == "F":
        return [("F", stage - 1, batch)] if stage else []
    if phase == "W":
        return [("G", stage, batch)]
    return [("F", stage, batch)] + ([("G", stage + 1, batch)] if stage < shape.stages - 1 else [])


# ------------------------------------------------------------------------------------------------------------- models
@pytest.mark.parametrize("schedule", ["breadth-first:4", "aiao", "zb-v", "dualpipe-v"])
def test_a_model_is_laid_out_in_every_schedule_and_computes_the_same(schedule: str) -> None:
    """Folded or not, a stage hands on to the next; embedding and logits are of one rank where the pipeline is folded."""
    spec = WorkloadSpec("gpt2-small", 4, "pp2,vp2,dp2", micro_batches=8)
    made = workload(GeneratedJobSpec(spec, schedule=schedule))
    assert check(made, warnings=False) == []
    folded = schedule_of(schedule)[0].folded
    assert [each.name for each in made.payloads if each.role == "embedding"] == ([] if folded else ["embedding"])
    (little,) = small(made)
    assert carry_out(little).held
    hands = sum(each.op == "send-recv" for each in made.payloads)
    assert hands == 2 * (2 if folded else 3)


def test_the_halves_of_a_schedule_that_splits_are_slots_of_their_own() -> None:
    made = workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", 2, "pp2", micro_batches=4), schedule="zb-h1"))
    assert {task.slot[0] for task in made.tasks if task.kind == "dW"} == {"W"}
    assert {phase for phase, _, _ in made.order["stage0"]} == {"F", "B", "W"}


@pytest.mark.parametrize(
    ("spelling", "chunks", "m", "remedy"),
    [
        ("zb-h3", 1, 8, "one of: 1f1b"),
        ("zb-h1", 2, 8, "no vp"),
        ("zb-v", 1, 8, "vp2"),
        ("zb-v", 2, 7, "--micro-batches 8"),
        ("breadth-first:2", 2, 8, "breadth-first:4"),
        ("breadth-first:x", 2, 8, "breadth-first:8"),
        ("aiao:4", 2, 8, "aiao"),
    ],
)
def test_what_a_schedule_is_not_made_for_says_what_to_type(spelling: str, chunks: int, m: int, remedy: str) -> None:
    with pytest.raises(UsageError) as refused:
        order(spelling, 4, 0, m, chunks)
    assert remedy in str(refused.value.remedy)


def test_a_chain_whose_replicas_cannot_share_says_so() -> None:
    with pytest.raises(UsageError, match="7 parameters over 2 replicas"):
        pipeline_chain(2, 2, replicas=2, elements=7)


@pytest.mark.parametrize(("schedule", "parallel"), [("zb-h1", "pp2,dp2,fsdp"), ("zb-v", "pp2,vp2,dp2,fsdp")])
def test_sharded_parameters_wait_for_no_gradient_of_weights_that_is_put_off(schedule: str, parallel: str) -> None:
    """Both ends of the model on one device are one unit of what is gathered; W of a layer is far behind the next layer's I."""
    spec = WorkloadSpec("gpt2-small", None, parallel, micro_batches=4)
    made = workload(GeneratedJobSpec(spec, schedule=schedule))
    assert check(made, warnings=False) == []
    roots = [each for each in made.payloads if ".gather.root." in each.name]
    widths = {value.name: value.size_bytes for value in made.values}
    assert [each.size_bytes for each in roots] == [widths[each.result] for each in roots]
    assert sum(len(each.consumers) for each in roots) == 2
