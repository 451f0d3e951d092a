"""The forward pass of one micro-batch beside the backward pass of another: what one waits for, the other computes meanwhile.

DualPipe's order has such pairs already (DeepSeek-V3, arXiv 2412.19437, section 3.2): a forward pass of one direction and the
backward pass of the other behind it. Other orders run a backward pass and then a forward one; those are the pairs of
Megatron-LM (``combined_1f1b``), so one more micro-batch is under way before the first backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from ringwright.graph.pipelines.shape import BACKWARD, FORWARD
from ringwright.graph.pipelines.stages import stages_of
from ringwright.ground.errors import WorkloadError
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._orders import Item, Pass, ordered, stretches
from ringwright.schedulers.decompose.oases.half_order import HalfTurns


def beside(workload: Workload) -> Workload:
    """Return the workload whose forward passes take turns with backward passes of other micro-batches, task by task.

    WorkloadError where no order of a class has one right behind the other, or passes are left to the next step.
    """
    if any(batch < 0 for each in workload.classes for _, batch in workload.line(each.name)):
        what = f"passes of {workload.name} run in the step behind their own: they have pairs of two steps"
        raise WorkloadError(what, where=workload.name, remedy="--schedule 1f1b or dualpipe")
    turns, orders, count, folded = HalfTurns(workload), dict[str, list[Item]](), 0, _is_folded(workload)
    for each in workload.classes:
        passes = stretches(workload, each.name)
        orders[each.name] = order = list[Item]()
        for pair in _pairs(_with_room(list(passes)), folded=folded):
            items = [item for one in pair for item in passes[one]]
            half = {item: int(one[0][0] != FORWARD) for one in pair for item in passes[one]}
            both = len({*half.values()}) > 1
            count += both
            order += turns.of(items, half) if both else items
    if not count:
        what = f"in {workload.name} no backward pass of a micro-batch lies beside the forward pass of another"
        raise WorkloadError(what, where=workload.name, remedy="--micro-batches 2 or more, --schedule 1f1b or dualpipe")
    said = (
        f"{count} forward passes run beside a backward pass of another micro-batch; more micro-batches are held for it"
    )
    return ordered(workload, orders).saying("oases", said)


def _is_folded(workload: Workload) -> bool:
    """Whether a device has two stages that face each other; what is no pipeline has not."""
    try:
        return stages_of(workload, "oases").shape.folded
    except WorkloadError:
        return False


def _with_room(passes: Sequence[Pass]) -> list[Pass]:
    """Return the passes of a device with one stage, in turns, with nearly twice as many forward ones ahead.

    What a pair makes is handed on when the pair is done, so a micro-batch comes back after twice as many pairs as stages follow.
    """
    forward, backward = ([each for each in passes if (each[0][0] == FORWARD) == ahead] for ahead in (True, False))
    if len({chunk for (_, chunk), _ in passes}) > 1 or not forward or not backward:
        return [*passes]
    room = min(2 * passes.index(backward[0]) - 1, len(forward))
    order, left = forward[:room], forward[room:]
    for each, following in zip_longest(backward, backward[1:]):
        order.append(each)
        if left and (following is None or following[0][0] == BACKWARD):
            order.append(left.pop(0))
    return order


def _pairs(passes: Sequence[Pass], *, folded: bool) -> list[tuple[Pass, ...]]:
    """Return the passes of a class in order, those that run beside each other together."""
    crossed = folded and any(_crosses(passes, at) for at in range(len(passes)))
    pairs: list[tuple[Pass, ...]] = []
    at = 0
    while at < len(passes):
        end = at + 1
        if passes[at][0][0] == FORWARD and crossed:
            end = _behind(passes, at + 1) if _crosses(passes, at) else end
        elif passes[at][0][0] == BACKWARD and not crossed:
            end = _behind(passes, at)
            end += end < len(passes) and passes[end][0][0] == FORWARD
        pairs.append(tuple(passes[at:end]))
        at = end
    return pairs


def _behind(passes: Sequence[Pass], at: int) -> int:
    """Return where a backward pass has ended, with the gradients of weights behind it, which may be of another micro-batch."""
    end = at + 1
    while end < len(passes) and passes[end][0][0] not in (FORWARD, BACKWARD):
        end += 1
    return end


def _crosses(passes: Sequence[Pass], at: int) -> bool:
    """Whether behind a forward pass comes the backward pass of another chunk and micro-batch."""
    two = passes[at : at + 2]
    return [slot[0] for slot, _ in two] == [FORWARD, BACKWARD] and two[0][0][1] != two[1][0][1]
