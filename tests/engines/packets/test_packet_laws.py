"""More latency, less rate, one more fault never make packets faster."""

from __future__ import annotations

import pytest

from engines.packets.packet_cases import healthy
from ringwright.engines.choose import simulate
from ringwright.fabrics import faults
from ringwright.ground.errors import InfeasibleError

pytestmark = pytest.mark.once  # the twin gives the same times
WORSE = (
    "link * loss 1%",
    "link random:1 loss 5%",
    "link random:1 dead from 5us to 200us",
    "link * rate 50%",
    "link random:1 rate 30%",
    "link * latency +2us",
    "link * ber 1.3e-3",
    "link * buffer 16KiB",
)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_nothing_gets_faster_by_a_fault(first: int) -> None:
    """Seeds 0 to 119 were looked at: none is faster by any of these."""
    for seed in range(first, first + 10):
        program, top = healthy(seed)
        well_ps = simulate(program, top, "packets").time_ps
        for line in WORSE:
            try:
                ill_ps = simulate(program, faults.apply(top, [line], seed=seed), "packets").time_ps
            except InfeasibleError:
                continue  # the job ends
            assert ill_ps >= well_ps, f"seed {seed}, {top.name}: {line}"
