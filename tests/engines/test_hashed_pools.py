"""Jobs that share the slots of a switch by a hash: the closed form beside packets, and beside slots that are parted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hashed_packets import simulate_hashed
from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.engines.choose import simulate
from ringwright.engines.pools.hashed_pool import HashedPool, missed, packet_time_ps
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check

pytestmark = pytest.mark.once
PACKET, LATENCY, PACKETS = 1_000_000, 10_000_000, 400
RACK = "switch:4,rate=100Gb/s,latency_s=10us,switches=tofino"


@pytest.mark.parametrize("slow", [1.0, 2.0])
@pytest.mark.parametrize(("workers", "slots", "window"), [(4, 44, 64), (8, 44, 44), (8, 352, 64)])
@pytest.mark.parametrize("jobs", [1, 4])
def test_the_closed_form_is_near_the_packets(jobs: int, workers: int, slots: int, window: int, slow: float) -> None:
    """``slow``: a worker of each job sends so many times longer, and what the others gave holds its slots meanwhile."""
    told = simulate_hashed(jobs, workers, slots, window, PACKETS, PACKET, LATENCY, [slow] * jobs)
    trip = 2 * (PACKET + LATENCY)
    pool = HashedPool(jobs, workers, slots, window, PACKET * slow, PACKET, 2 * trip, trip)
    each_ps = packet_time_ps(pool)
    assert max(told.times_ps) / PACKETS == pytest.approx(each_ps, rel=0.1)
    assert sum(told.missed) / jobs / PACKETS == pytest.approx(missed(pool, each_ps), abs=0.04)


def test_with_room_for_all_nothing_misses_and_the_line_decides() -> None:
    told = simulate_hashed(2, 3, 1 << 40, 64, PACKETS, PACKET, LATENCY)
    assert told.missed == (0, 0)
    assert told.times_ps == (PACKETS * PACKET + 3 * PACKET + 4 * LATENCY,) * 2


def test_a_straggler_of_one_job_holds_slots_that_the_others_miss() -> None:
    calm, held = (simulate_hashed(4, 4, 512, 32, 600, PACKET, LATENCY, slow) for slow in ((), (8.0, 1.0, 1.0, 1.0)))
    assert held.times_ps[0] > 2 * calm.times_ps[0]
    assert sum(held.missed[1:]) > 1.15 * sum(calm.missed[1:])
    assert sum(held.times_ps[1:]) > sum(calm.times_ps[1:])


# -------------------------------------------------------------------------------------------------------- of a program
def program(top: Topology, **knobs: object) -> Program:
    return switchml(Collective("all-reduce", range(top.n_ranks), 4 << 20), top, slots=256, **knobs)  # type: ignore[arg-type]


def test_a_part_each_is_quicker_for_few_jobs_and_a_hash_for_many() -> None:
    top = fabric(RACK)
    times = {
        sharing: [simulate(program(top, jobs=jobs, sharing=sharing), top).time_s for jobs in (1, 2, 4, 8, 16)]
        for sharing in ("parted", "hashed")
    }
    for each in times.values():
        assert each == sorted(each)
    assert times["parted"][0] < times["hashed"][0]
    assert times["hashed"][4] < 0.6 * times["parted"][4]
    assert (
        times["hashed"][4] < 4.1 * times["parted"][0]
    )  # four workers: a server takes four packets for one at the most


def test_a_stream_by_a_hash_takes_what_the_form_says() -> None:
    top = fabric(RACK)
    made = program(top, jobs=4, sharing="hashed")
    (stream,) = made.streams
    assert (stream.jobs, stream.slots, stream.loss, stream.fallback) == (4, 256, "resend-to-server", 0)
    packet_ps = 1024 * 8 / 100e9 * 1e12
    trip = 2 * (packet_ps + 10e6)
    wanted_s = 4096 * packet_time_ps(HashedPool(4, 4, 256, 256, packet_ps, packet_ps, 2 * trip, trip)) / 1e12
    assert simulate(made, top).time_s == pytest.approx(wanted_s, rel=0.05)
    slower = simulate(made, apply(top, ["link rank3 rate 20%"])).time_s
    assert slower > wanted_s
    with pytest.raises(DeclinedError, match="a server mends"):
        simulate(made, top, "packets")


def test_what_has_no_model_is_refused() -> None:
    top = fabric("leaf-spine:8,per_leaf=4,switches=tofino")
    with pytest.raises(UsageError, match="slots by a hash"):
        program(top, sharing="hashed")
    made = program(fabric(RACK), jobs=2, sharing="hashed")
    broken = replace(made, streams=(replace(made.streams[0], fallback=None, loss="reliable", timeout_s=0.0),))
    assert "a pool of 2 jobs" in next(each.message for each in check(broken) if each.rule == "slots")
    assert program(fabric(RACK), jobs=3).streams[0].slots == 85
