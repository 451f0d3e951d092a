"""Times that others have computed and closed forms that everybody knows, to the last digit they print."""

from __future__ import annotations

import pytest

from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective

RATE = 50 * 2**30  # bytes/s
LATENCY_S = 500e-9
SIZES = {"1 MiB": 1 << 20, "64 MiB": 64 << 20, "1 GiB": 1 << 30}
# us by LogGOPSim (L 500 ns, G 1/(50 x 2^30) s/B, o = g = O = 0), which charges n - 1 bytes for a message of n.
RING = {8: (41.18, 2194.4, 35006.0), 64: (101.4, 2523.9, 39437.0), 512: (550.0, 3006.0, 40432.0)}
HALVING_DOUBLING = {8: (37.18, 2190.4, 35002.0), 64: (44.45, 2466.9, 39380.0), 512: (47.98, 2504.1, 39930.0)}


def machine(p: int):  # type: ignore[no-untyped-def]
    return fabric(f"full:{p}", rate=RATE, latency_s=LATENCY_S)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("p", RING)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("engine", ["events", "recurrence", "closed-form"])
def test_ring(p: int, name: str, engine: str) -> None:
    size = SIZES[name]
    run = simulate(ring(Collective("all-reduce", range(p), size)), machine(p), engine=engine)
    wanted_us = 2 * (p - 1) * (LATENCY_S + size / p / RATE) * 1e6
    assert run.time_ps * 1e-6 == pytest.approx(wanted_us, rel=1e-12, abs=2e-6 * p)  # whole ps a message
    charged = 2 * (p - 1) / RATE * 1e6  # the byte of each message that LogGOPSim does not charge
    printed = RING[p][list(SIZES).index(name)]
    assert run.time_ps * 1e-6 - charged == pytest.approx(printed, abs=_last_digit(printed))


@pytest.mark.parametrize("p", HALVING_DOUBLING)
@pytest.mark.parametrize("name", SIZES)
def test_halving_doubling(p: int, name: str) -> None:
    size = SIZES[name]
    run = simulate(rabenseifner(Collective("all-reduce", range(p), size)), machine(p), engine="events")
    steps = p.bit_length() - 1
    wanted_us = (2 * steps * LATENCY_S + 2 * (p - 1) / p * size / RATE) * 1e6
    assert run.time_ps * 1e-6 == pytest.approx(wanted_us, rel=1e-12, abs=2e-6 * p)  # whole ps a message
    charged = 2 * steps / RATE * 1e6
    printed = HALVING_DOUBLING[p][list(SIZES).index(name)]
    assert run.time_ps * 1e-6 - charged == pytest.approx(printed, abs=_last_digit(printed))


@pytest.mark.parametrize(("size", "printed"), [(1 << 20, 4133.9)])
def test_4096_ranks(size: int, printed: float) -> None:
    """The case that takes other simulators 42 to 294 s of processor time."""
    switch = fabric("switch:4096", rate=RATE, latency_s=LATENCY_S / 2)
    run = simulate(ring(Collective("all-reduce", range(4096), size)), switch)
    assert run.folded
    assert run.time_ps * 1e-6 - 2 * 4095 / RATE * 1e6 == pytest.approx(printed, abs=_last_digit(printed))


def _last_digit(number: float) -> float:
    """Return one unit of the last digit printed: some of the figures are cut there, others rounded."""
    return 1.001 * 10.0 ** -len(f"{number:g}".partition(".")[2])
