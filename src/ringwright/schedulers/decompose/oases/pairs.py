"""Two micro-batches as the halves of one batch: where a micro-batch is one sequence, nothing needs to be cut."""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.graph.pipelines import order as order_of
from ringwright.graph.pipelines.stages import stages_of
from ringwright.ground.errors import UsageError, WorkloadError
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._orders import Item, Pass, ordered, stretches
from ringwright.schedulers.decompose.oases.half_order import HalfTurns

IN_GROUPS = ("1f1b", "gpipe")  # whose chunks take turns of as many micro-batches as there are devices
SCHEDULES = (*IN_GROUPS, "breadth-first", "aiao")  # whose backward passes are whole


def paired(workload: Workload) -> Workload:
    """Return the workload with micro-batches 2 k and 2 k + 1 by turns, task by task.

    A pipeline stage then runs pairs in the order in which it ran micro-batches, and holds twice as many. WorkloadError for an odd
    number of micro-batches, and for chunks in an order of which nobody knows what it would be of pairs.
    """
    if workload.micro_batches % 2:
        what = f"{workload.micro_batches} micro-batches are no pairs"
        raise WorkloadError(
            what, where=workload.name, remedy="--micro-batches: an even number, or --micro-batch-size 2"
        )
    turns, orders = HalfTurns(workload), dict[str, list[Item]]()
    for each in workload.classes:
        passes, order = stretches(workload, each.name), list[Item]()
        for slot, pair in _by_pairs(list(passes), workload, each.name):
            one, other = passes[slot, 2 * pair], passes[slot, 2 * pair + 1]
            items = [item for both in zip(one, other, strict=True) for item in both]
            order += turns.of(items, {item: item[1] % 2 for item in items})
        orders[each.name] = order
    said = "two micro-batches take turns: a stage fills with half as many pairs, and holds twice as much"
    return ordered(workload, orders).saying(
        "oases", said, "--micro-batch-size 2 gives halves that no pipeline waits for"
    )


def _by_pairs(passes: Sequence[Pass], workload: Workload, of: str) -> list[Pass]:
    """Return the passes of a stage with pairs in place of micro-batches: as many forward ones ahead, then one by one."""
    forward = [each for each in passes if each[0][0] == "F"]
    backward = [each for each in passes if each[0][0] != "F"]
    if any(len({slot for slot, _ in mine}) > 1 for mine in (forward, backward)):
        return _round_chunks(passes, workload, of)
    ahead = next((at for at, each in enumerate(passes) if each[0][0] != "F"), len(passes))
    pairs = workload.micro_batches // 2
    ahead = min(max(1, ahead), pairs)
    firsts = [(each[0], at) for each in forward[:1] for at in range(pairs)]
    seconds = [(each[0], at) for each in backward[:1] for at in range(pairs)]
    order = firsts[:ahead]
    for at, each in enumerate(seconds):
        order += [each, *firsts[ahead + at : ahead + at + 1]]
    return order


def _round_chunks(passes: Sequence[Pass], workload: Workload, of: str) -> list[Pass]:
    """Return the passes of a stage of several chunks, in the order in which its schedule runs half as many micro-batches.

    WorkloadError for an order that is of no schedule known, and where pairs do not fill the groups that go round.
    """
    stages = stages_of(workload, "oases")
    shape, device, now = stages.shape, stages.devices.index(of), tuple((*slot, batch) for slot, batch in passes)
    pairs = workload.micro_batches // 2
    for spelling in SCHEDULES:
        try:
            known = order_of(spelling, shape.devices, device, shape.micro_batches, shape.chunks)
        except UsageError:
            continue  # a schedule that is made for another pipeline
        if known == now and spelling in IN_GROUPS and pairs % shape.devices:
            what = f"{workload.micro_batches} micro-batches are {pairs} pairs, and chunks take turns of {shape.devices}"
            raise WorkloadError(what, where=of, remedy=f"--micro-batches {2 * shape.devices}, or --micro-batch-size 2")
        if known == now:
            slots = order_of(spelling, shape.devices, device, pairs, shape.chunks)
            return [((phase, chunk), pair) for phase, chunk, pair in slots]
    what = f"{of} runs its chunks in an order of which that of pairs is not known"
    raise WorkloadError(what, where=of, remedy="--schedule 1f1b, or --micro-batch-size 2")
