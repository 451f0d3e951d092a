"""Orders of pipelines beside those that PyTorch's own schedules compute, action by action."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from ringwright.graph.pipelines import Shape, order, schedule_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.once,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is absent: no orders to compare with"
    ),
]
THEIRS = {
    "aiao": ("ScheduleLoopedBFS", 2),  # breadth first, backward from the last micro-batch
    "1f1b": ("ScheduleInterleaved1F1B", 2),
    "zb-h1": ("ScheduleInterleavedZeroBubble", 1),
    "zb-v": ("ScheduleZBVZeroBubble", 2),
    "dualpipe-v": ("ScheduleDualPipeV", 2),
}
Action = tuple[int, str, int]


def whole(actions: list[Action]) -> list[Action]:
    """Return actions with gradients of weights right behind those of inputs as one backward pass."""
    joined: list[Action] = []
    for action in actions:
        if action[1] == "W" and joined and joined[-1] == (action[0], "I", action[2]):
            joined[-1] = (action[0], "B", action[2])
        else:
            joined.append(action)
    return joined


def computed(schedule: str, devices: int, micro_batches: int, device: int) -> list[Action]:
    """Return what PyTorch's schedule has a rank do, without the stages that it would run."""
    from torch.distributed.pipelining import schedules

    name, chunks = THEIRS[schedule]
    kind: Any = getattr(schedules, name)
    made = kind.__new__(kind)
    rounds = max(1, micro_batches // devices)
    made.pp_group_size, made._n_microbatches, made.rank = devices, micro_batches, device
    made.n_local_stages, made._stages = chunks, list(range(chunks))
    made.num_stages = made._num_stages = devices * chunks
    made.number_of_rounds, made.microbatches_per_round = rounds, micro_batches // rounds
    try:
        listed = made._calculate_single_rank_operations(device)
    except TypeError:
        listed = made._calculate_single_rank_operations(device, micro_batches)
    parts = (part for each in listed if each is not None for part in each.sub_actions or (each,))
    return [(part.stage_index, part.computation_type.value, part.microbatch_index) for part in parts]


@pytest.mark.parametrize("schedule", sorted(THEIRS))
@pytest.mark.parametrize(("devices", "micro_batches"), [(2, 8), (4, 8), (4, 12), (8, 16)])
def test_an_order_is_pytorchs_own(schedule: str, devices: int, micro_batches: int) -> None:
    chunks = THEIRS[schedule][1]
    shape = Shape(devices, micro_batches, chunks, schedule_of(schedule)[0].folded)
    for device in range(devices):
        slots = order(schedule, devices, device, micro_batches, chunks)
        mine = [(shape.stage(device, chunk), phase, batch) for phase, chunk, batch in slots]
        assert whole(mine) == whole(computed(schedule, devices, micro_batches, device))
