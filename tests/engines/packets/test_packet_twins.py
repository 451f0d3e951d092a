"""The compiled packet loop and its Python twin: the same answers to the picosecond, with and without trains."""

from __future__ import annotations

import numpy as np
import pytest

from engines.packets.packet_cases import case
from ringwright.engines.packets import loops
from ringwright.engines.packets.loop import PacketRun
from ringwright.engines.packets.ports import NEVER, bar, least_of
from ringwright.native import packets as compiled

pytestmark = pytest.mark.once  # compares the twins itself

FIELDS = ("start", "end", "drops", "lost", "pauses", "marked", "most", "bytes", "bars")
COUNTS = ("hops", "retransmitted_bytes", "timeouts", "gave_up")
BIN_PS = 10_000_000


def differences(one: PacketRun, other: PacketRun) -> list[str]:
    """Return the fields in which two runs differ."""
    apart = [name for name in FIELDS if not np.array_equal(np.asarray(getattr(one, name)), getattr(other, name))]
    apart += [name for name in COUNTS if getattr(one, name) != getattr(other, name)]
    rows = (np.asarray(each.samples, np.int64).reshape(-1, 3) for each in (one, other))
    return apart + ([] if np.array_equal(*rows) else ["samples"])


@pytest.mark.sampled(2, "first")
@pytest.mark.parametrize("first", range(0, 120, 10))
def test_twins_agree_to_the_picosecond(first: int) -> None:
    for seed in range(first, first + 10):
        asked = case(seed)
        net, how = asked.network(), {"acknowledged": asked.acknowledged, "bin_ps": BIN_PS}
        twin = loops.twin(net, trains=True, **how)
        assert differences(loops.twin(net, trains=False, **how), twin) == [], f"seed {seed}: trains"
        if compiled is not None:
            for trains in (True, False):
                assert differences(loops.packets(net, trains=trains, **how), twin) == [], f"seed {seed}: {trains}"


def test_the_cases_meet_all_that_can_happen() -> None:
    met: set[str] = set()
    for seed in range(120):
        asked = case(seed)
        told = loops.packets(asked.network(), acknowledged=asked.acknowledged, trains=True, bin_ps=BIN_PS)
        met |= {name for name in ("drops", "lost", "marked", "pauses") if np.sum(getattr(told, name))}
        met |= {"timeouts"} if told.timeouts else set()
        met |= {"gave up"} if told.gave_up[0] >= 0 else set()
        arrived = np.asarray(told.end) < NEVER
        assert told.gave_up[0] >= 0 or arrived.all(), f"seed {seed}: a message never arrives"
    assert met == {"drops", "lost", "marked", "pauses", "timeouts", "gave up"}


def test_bars_of_queues_are_in_order_and_hold_what_falls_into_them() -> None:
    sizes = [*range(300), *(1 << power for power in range(9, 50)), *((1 << power) - 1 for power in range(9, 50))]
    for size in sizes:
        assert least_of(bar(size)) <= size < least_of(bar(size) + 1)
        assert size - least_of(bar(size)) <= size / 16
