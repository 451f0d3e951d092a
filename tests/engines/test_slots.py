"""Streams in the engines: slots over a round trip, a sender's window, passes through a pipeline, and timers that mend losses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ringwright.algorithms.blocks.collnet_chain import collnet_chain
from ringwright.algorithms.blocks.collnet_direct import collnet_direct
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.nvls_collnet import nvls_collnet
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines.choose import simulate
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.engines.pools.expected_losses import PoolTimes, late_ps
from ringwright.engines.switch_slots import NO_TIMER, machines
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.units import PS
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once
PAYLOAD, SIZE = 4096, 16 << 20
STAR = "switch:8,rate=50GB/s,latency_s=1us,sharp=true"
LEAVES = "leaf-spine:12,per_leaf=4,rate=50GB/s,sharp=true"


def all_reduce(topology: Topology, size_bytes: int = SIZE) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes)


def way_s(topology: Topology, src: str, dst: str) -> float:
    """Return the seconds of one packet between two nodes: latencies, and its bytes over the slowest link."""
    _, links = topology.routes(np.array([topology.find(src)]), np.array([topology.find(dst)]))
    return float(topology.latency_s[links].sum() + PAYLOAD / topology.rate[links].min())


def round_trip_s(spec: str, *nodes: str) -> float:
    """Return the seconds of a packet up the nodes named and down again."""
    top = fabric(spec)
    return sum(way_s(top, one, other) + way_s(top, other, one) for one, other in pairwise(nodes))


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize(
    ("spec", "way"), [(STAR, ("rank0", "switch")), (LEAVES, ("rank0", "leaf0", "spine0"))], ids=["star", "leaves"]
)
def test_few_slots_move_their_packets_once_a_round_trip(spec: str, way: tuple[str, ...], slots: int) -> None:
    top = fabric(spec)
    run = simulate(collnet_direct(all_reduce(top), top, slots=slots, segments=256), top)
    wanted = SIZE * round_trip_s(spec, *way) / (slots * PAYLOAD)
    if slots == 1 and len(way) > 2:
        # A result comes down to the only place of a leaf when the one before it has left.
        wanted += SIZE / 50e9 + 256 * way_s(top, "spine0", "leaf0")
    assert run.time_s == pytest.approx(wanted, rel=0.02)
    assert run.bottleneck.startswith("the slots of")
    assert "waiting for the slots of" in run.path()


@pytest.mark.parametrize("slots", [2, 3])
def test_a_contribution_waits_for_the_result_that_frees_its_place(slots: int) -> None:
    """Chunk k of a rank begins when the result of chunk k - places has left the switch, and not before."""
    top = fabric(STAR)
    run = simulate(collnet_direct(all_reduce(top), top, slots=slots, segments=12), top, fold_symmetry=False)
    assert run.flat is not None
    given = run.start_ps[(run.flat.src == 3) & (run.flat.dst == 8)]
    freed = run.end_ps[(run.flat.src == 8)].reshape(12, 8).max(axis=1)
    assert len(given) == 12
    assert (given[slots:] >= freed[:-slots]).all()
    assert (given[slots:] < freed[slots:]).all()
    assert (given[:slots] < freed[0]).all()


@pytest.mark.parametrize("block", [collnet_direct, collnet_chain, nvls_collnet])
def test_more_slots_are_never_slower_until_the_links_are_full(block: Any) -> None:
    top = fabric("dgx-h100:2,sharp=true")
    wanted = all_reduce(top, 4 << 20)
    times = [simulate(block(wanted, top, slots=slots, segments=16), top).time_ps for slots in (1, 4, 16, 512)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[-1]
    assert times[-1] == simulate(block(wanted, top, segments=16), top).time_ps


def test_slots_of_a_switch_above_hold_all_leaves_back() -> None:
    """The spine has one slot, the leaves many: a packet takes it for the way from leaf to spine and back."""
    top = fabric(LEAVES)
    program = collnet_direct(all_reduce(top), top, segments=256)
    spine = top.find("spine0")
    narrow = tuple(replace(each, slots=8) if each.node == spine else each for each in program.streams)
    wide = replace(program, streams=tuple(replace(each, slots=4096 // 8) for each in program.streams))
    narrowed = replace(program, streams=narrow)
    byte_s = round_trip_s(LEAVES, "leaf0", "spine0") / (8 * PAYLOAD)
    assert byte_s < 1 / 50e9  # eight are enough
    assert simulate(narrowed, top).time_ps == simulate(wide, top).time_ps
    places = collnet_direct(all_reduce(top), top, segments=256, slots=2)
    two = tuple(replace(each, slots=2 if each.node == spine else 512) for each in places.streams)
    run = simulate(replace(places, streams=two), top)
    assert run.time_s == pytest.approx(SIZE * round_trip_s(LEAVES, "leaf0", "spine0") / (2 * PAYLOAD), rel=0.03)


def test_a_window_holds_each_sender_back() -> None:
    top = fabric(STAR)
    program = collnet_direct(all_reduce(top), top, segments=256)
    one = replace(program, streams=(replace(program.streams[0], window=1),))
    run = simulate(one, top)
    assert run.time_s == pytest.approx(SIZE * round_trip_s(STAR, "rank0", "switch") / PAYLOAD, rel=0.02)
    assert run.bottleneck == "the window of rank0 at switch"


def test_several_passes_take_in_a_part_of_a_ports_rate() -> None:
    top = fabric(STAR)
    program = collnet_direct(all_reduce(top), top, segments=256)
    often = replace(top, aggregators={8: replace(top.aggregators[8], passes=4)})
    once, four = simulate(program, top), simulate(program, often)
    assert once.time_s == pytest.approx(SIZE / 50e9, rel=0.03)
    assert four.time_s == pytest.approx(4 * SIZE / 50e9, rel=0.03)
    assert four.bottleneck.startswith("the pipeline behind rank")
    assert simulate(ring(all_reduce(top)), often).time_ps == simulate(ring(all_reduce(top)), top).time_ps


def test_both_event_loops_agree_on_slots() -> None:
    top = fabric(LEAVES)
    program = collnet_direct(all_reduce(top, 1 << 20), top, slots=2, segments=16)
    assert simulate(program, top).time_ps == simulate(program, top, native=False).time_ps


@pytest.mark.parametrize(("slots", "window"), [(0, 0), (2, 0), (8, 1)])
@pytest.mark.parametrize("block", [collnet_direct, nvls_collnet])
def test_a_folded_program_is_held_back_as_the_whole_one(block: Any, slots: int, window: int) -> None:
    top = fabric("dgx-h100:4,sharp=true")
    program = block(all_reduce(top, 1 << 20), top, segments=4, slots=slots or None)
    program = replace(program, streams=tuple(replace(each, window=window) for each in program.streams))
    whole = simulate(program, top, fold_symmetry=False)
    assert simulate(program, top).time_ps == whole.time_ps
    assert not whole.folded


def test_results_that_are_not_copied_pass_slots_in_every_engine() -> None:
    """Of a reduce-scatter each rank takes a part of its own: flows and events see the same slots."""
    top = fabric("dgx-h100:1")
    program = nvls(Collective("reduce-scatter", range(8), 8 << 20), top)
    few = replace(program, streams=(replace(program.streams[0], slots=64),))
    events, fluid = (simulate(few, top, engine).time_s for engine in ("events", "flows"))
    assert events > 2 * simulate(program, top, "events").time_s
    assert fluid == pytest.approx(events, rel=0.1)


def test_programs_at_the_same_time_have_slots_of_their_own() -> None:
    top = fabric("dgx-h100:2,sharp=true")
    pairs = [Collective("all-reduce", [rank, rank + 8], 1 << 20) for rank in (0, 1)]
    programs = [collnet_direct(pair, top, slots=1, segments=8) for pair in pairs]
    alone = [simulate(program, top).time_ps for program in programs]
    together = simulate_together(programs, top)
    assert together.ends_ps.tolist() == alone  # rails apart, NVLink not used


# ----------------------------------------------------------------------------------------------------------------- loss
TIMEOUT_S = 1e-3


def timed(topology: Topology, slots: int = 64, **changed: Any) -> Program:
    program = collnet_direct(all_reduce(topology), topology, segments=256)
    fields: dict[str, Any] = {"slots": slots, "versions": 2, "loss": "host-timer", "timeout_s": TIMEOUT_S}
    return replace(program, streams=(replace(program.streams[0], **(fields | changed)),))


def lossy(topology: Topology, share: float) -> Topology:
    return replace(topology, loss=np.full(topology.n_links, share))


@pytest.mark.parametrize("share", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("slots", [16, 64])
def test_a_timer_mends_a_loss_by_the_formula(share: float, slots: int) -> None:
    """As ``pools.expected`` has it: 4,096 packets, a loss on any of 16 links, the round trip of one packet."""
    top = fabric(STAR)
    program = timed(top, slots)
    times = PoolTimes(
        SIZE // PAYLOAD, slots, PAYLOAD / 50e9 * PS, round_trip_s(STAR, "rank0", "switch") * PS, 16, 1, TIMEOUT_S * PS
    )
    wanted = simulate(program, top).time_s + late_ps(times, 1 - (1 - share) ** 16) / PS
    assert simulate(program, lossy(top, share)).time_s == pytest.approx(wanted, rel=1e-4)


def test_slots_that_hold_nothing_lose_nothing() -> None:
    """16 packets use 16 of 64 slots, and 16 of 32."""
    top = fabric(STAR)
    small = collnet_direct(all_reduce(top, 16 * PAYLOAD), top, segments=8)
    fields = {"versions": 2, "loss": "host-timer", "timeout_s": TIMEOUT_S}
    many, few = (replace(small, streams=(replace(small.streams[0], slots=each, **fields),)) for each in (64, 32))  # type: ignore[arg-type]
    assert simulate(many, lossy(top, 1e-3)).time_ps == simulate(few, lossy(top, 1e-3)).time_ps


def test_a_loss_that_no_timer_mends_is_a_thinner_link() -> None:
    top = fabric(STAR)
    program = collnet_direct(all_reduce(top), top, segments=256)
    run = simulate(program, lossy(top, 0.1))
    assert run.time_s == pytest.approx(simulate(program, top).time_s / 0.9, rel=0.01)
    assert NO_TIMER in run.left_out
    assert NO_TIMER not in simulate(program, top).left_out


def test_a_loss_that_sets_in_late_costs_less_and_one_that_ends_too() -> None:
    top = fabric(STAR)
    program = timed(top)
    whole = simulate(program, apply(top, ["link rank0>switch loss 0.1%"])).time_s
    healthy = simulate(program, top).time_s
    late = simulate(program, apply(top, [f"link rank0>switch loss 0.1% at {healthy / 2 * 1e6:.0f}us"])).time_s
    assert healthy < late < whole


def test_links_that_others_use_too_stay_thin() -> None:
    """Inside the node of a lossy NVLink no stream runs: sums and copies there are slower, and those of the network are not."""
    top = fabric("dgx-h100:2,sharp=true")
    program = collnet_direct(all_reduce(top), top, segments=16)
    streams = tuple(replace(each, versions=2, loss="host-timer", timeout_s=1e-3) for each in program.streams)
    (made,) = machines([replace(program, streams=streams)], lossy(top, 0.1))
    healthy = 1e12 / np.asarray(top.rate)
    thin = made.ps_per_byte[: top.n_links] > healthy * 1.01
    kinds = {top.classes[number] for number in np.unique(top.link_class[thin]).tolist()}
    assert "nvlink" in kinds
    assert "nic" not in kinds


def test_a_timer_shorter_than_the_answer_is_refused() -> None:
    top = fabric(STAR)
    with pytest.raises(InfeasibleError, match="expires before an answer can come"):
        simulate(timed(top, timeout_s=1e-6), top)


# ------------------------------------------------------------------------------------------------------------------ law
def test_more_latency_less_rate_or_more_loss_make_no_stream_faster() -> None:
    rng = np.random.default_rng(26)
    for _ in range(25):
        latency, rate = rng.uniform(0.1, 5, 2) * 1e-6, rng.uniform(5, 60)
        slots, window = int(rng.choice([0, 1, 3, 8, 64])), int(rng.choice([0, 1, 2]))
        changed = {"slots": slots, "window": min(window, slots or window), "timeout_s": 0.1}
        specs = [
            f"switch:4,rate={rate * factor:.6g}GB/s,latency_s={at:.9g},sharp=true"
            for at, factor in ((latency[0], 1.0), (latency.sum(), 1.0), (latency[0], 0.6))
        ]
        tops = [fabric(spec) for spec in specs]
        share = float(rng.choice([0.0, 1e-4, 1e-2]))
        tops = [lossy(top, share) for top in tops] + [lossy(tops[0], share * 2 + 1e-3)]
        made = collnet_direct(all_reduce(tops[0], 1 << 20), tops[0], segments=8, slots=slots or None)
        for loss in ("reliable", "host-timer"):
            timer = changed | {"loss": loss, "versions": 2, "timeout_s": 0.1 * (loss == "host-timer")}
            program = replace(made, streams=(replace(made.streams[0], **timer),))  # type: ignore[arg-type]
            times = [simulate(program, top).time_ps for top in tops]
            assert min(times) == times[0], (specs, slots, window, loss, times)
