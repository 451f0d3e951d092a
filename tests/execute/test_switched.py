"""A switch that adds: its protocol without sockets, in made-up time, under loss, doubles, late copies and deaths by script."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringwright.execute.switched.frames import (
    CONTROL_BYTES,
    DATA,
    JOINED,
    LEAVE,
    REFUSED,
    ControlFrame,
    FrameShape,
    address,
    control_bytes,
)
from ringwright.execute.switched.frames import JOIN as JOINS
from ringwright.execute.switched.pool import PoolOutcome, SwitchSlots
from ringwright.execute.switched.switch import IDLE_S, MOST_WORKERS, AddingSwitch, SwitchSettings
from ringwright.execute.switched.worker import LEAST_RTO_S, Membership, Worker
from ringwright.ground.errors import UsageError
from ringwright.model.codecs import block_exponent
from ringwright.model.codecs.block_exponent import NO_EXPONENT
from switched_network import HOP_S, Network, at_once

pytestmark = pytest.mark.once
SMALL = {"payload_bytes": 128, "slots": 4}


def _vectors(seed: int, workers: int, elements: int, kind: type = np.int32) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(-(1 << 20), 1 << 20, elements).astype(kind) for _ in range(workers)]


def _is_data(frame: np.ndarray) -> bool:
    return frame[0] >> 4 == DATA


class Weather:
    """Loses, doubles and delays data frames by lot; control frames are only lost."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.loss, self.double, self.late = self.draw.uniform(0, [0.2, 0.2, 0.3])

    def __call__(self, source: Any, target: Any, frame: np.ndarray) -> list[float]:
        if self.draw.random() < self.loss:
            return []
        copies = 1 + (self.draw.random() < self.double)
        return [HOP_S + (self.draw.random() < self.late) * float(self.draw.uniform(0, 0.05)) for _ in range(copies)]


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("block", range(10))
def test_any_weather_gives_exact_sums_and_names_the_dead(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        draw = np.random.default_rng(1000 + seed)
        tree = [[3], [2, 2], [4], [1, 2]][seed % 4]
        workers = sum(tree)
        knobs = {**SMALL, "codec": "none", "key": b"secret" * (seed % 2)}
        network = Network(tree, Weather(seed), patience_s=8.0, **knobs)
        for worker in network.workers.values():
            worker._base = (1 << 32) - 20  # chunk numbers wrap around in the first vector
        kill_s = float(draw.uniform(0, 0.2)) if seed % 5 == 0 else None
        victim = ("worker", int(draw.integers(workers)))

        def look(net: Network, kill_s: float | None = kill_s, victim: Any = victim, seed: int = seed) -> None:
            if kill_s is not None and net.now_s > kill_s:
                net.dead.add(victim)
            uses = np.array([worker._uses for worker in net.workers.values()])
            assert np.ptp(uses, axis=0).max() <= 1, seed  # a slot has two live chunks at most

        for turn in range(3):
            vectors = _vectors(seed * 3 + turn, workers, int(draw.integers(1, 300)))
            wanted = np.sum(vectors, axis=0, dtype=np.int32)
            sums = network.all_reduce(vectors, look)
            for name, got in zip(network.workers, sums, strict=True):
                if got is not None:
                    assert np.array_equal(got, wanted), (seed, turn, name)
            if network.errors:
                break
        if victim not in network.dead:
            assert not network.errors, seed
        for name, error in network.errors.items():
            local = network.workers[victim].member.worker
            same = network.above[name] == network.above[victim]
            who = f"worker {local} " if same else f"branch {network.above[victim][1]} "
            assert error.what.startswith(who), (seed, name, victim, error.what)


@pytest.mark.parametrize("codec", ["block-exponent", "int8", "none"])
@pytest.mark.parametrize("tree", [[1], [4], [2, 2], [3, 1]])
def test_every_codec_keeps_its_bound_over_several_vectors(tree: list[int], codec: str) -> None:
    network = Network(tree, codec=codec, key=b"k", **SMALL)
    draw = np.random.default_rng(3)
    for elements in (1, 700, 0, 130):  # not a multiple of the slots
        if codec == "none":
            vectors = _vectors(elements, sum(tree), elements)
        else:
            sizes = 10.0 ** draw.uniform(-30, 30, elements)
            vectors = [(draw.standard_normal(elements) * sizes).astype(np.float32) for _ in range(sum(tree))]
        exact = np.sum(vectors, axis=0, dtype=np.float64 if codec != "none" else np.int32)
        for got in network.all_reduce(vectors):
            assert got is not None
            if codec == "none":
                assert np.array_equal(got, exact)
                continue
            element = "int8" if codec == "int8" else "int32"
            n = FrameShape(element, 128).elements
            padded = np.zeros((sum(tree), -(-elements // n) * n), np.float32)
            padded[:, :elements] = vectors
            agreed = np.max([block_exponent.exponents(each.reshape(-1, n)) for each in padded], axis=0)
            bound = np.repeat(block_exponent.error_bound(agreed, sum(tree), element), n)[:elements]
            assert (np.abs(got - exact) <= bound + np.abs(exact) * 2.0**-24).all()


def test_whole_numbers_in_float32_are_exact() -> None:
    network = Network([4], codec="block-exponent", payload_bytes=1024, slots=2)
    vectors = [np.arange(3000, dtype=np.float32) % 100 + 1 + rank for rank in range(4)]
    for got in network.all_reduce(vectors):
        assert np.array_equal(got, np.sum(vectors, axis=0))


class DropOne:
    """Loses the first data frame between two that carries a certain chunk."""

    def __init__(self, source: Any, target: Any, tsi: int) -> None:
        self.one = (source, target, tsi)
        self.dropped = 0

    def __call__(self, source: Any, target: Any, frame: np.ndarray) -> list[float]:
        tsi = int.from_bytes(frame[2:6].tobytes(), "big")
        if _is_data(frame) and (source, target, tsi) == self.one and not self.dropped:
            self.dropped += 1
            return []
        return [HOP_S]


def _drop(tree: list[int], source: Any, target: Any, tsi: int) -> tuple[Network, list[int]]:
    """Lose one frame of 19 chunks over 4 slots; return the network and how often each worker sent again."""
    script = DropOne(source, target, tsi)
    network = Network(tree, script, codec="none", **SMALL)
    vectors = _vectors(1, sum(tree), 19 * 32)
    for got in network.all_reduce(vectors):
        assert np.array_equal(got, np.sum(vectors, axis=0, dtype=np.int32))
    assert script.dropped == 1
    return network, [worker.counts["again"] for worker in network.workers.values()]


def test_one_lost_result_is_one_copy_more() -> None:
    network, again = _drop([3], ("leaf", 0), ("worker", 1), 18)  # nothing follows in its slot
    assert again == [0, 1, 0]
    assert network.switches["leaf", 0].jobs[0].pool.counts["repeated"] == 1


def test_whoever_waits_for_the_one_that_lost_a_result_sends_one_copy_too() -> None:
    for tsi in (0, 5):
        assert _drop([3], ("leaf", 0), ("worker", 1), tsi)[1] == [1, 1, 1]


def test_one_lost_contribution_is_one_copy_of_each_worker() -> None:
    assert _drop([3], ("worker", 1), ("leaf", 0), 5)[1] == [1, 1, 1]


def test_a_result_lost_between_switches_is_asked_for_again() -> None:
    network, again = _drop([2, 2], ("root", 0), ("leaf", 1), 18)
    assert again == [0, 0, 1, 1]
    assert network.switches["root", 0].jobs[0].pool.counts["repeated"] == 2  # the leaf keeps no timer of its own


def test_timers_follow_the_queue_and_never_fall_below_ten_milliseconds() -> None:
    def slow(source: Any, target: Any, frame: np.ndarray) -> list[float]:
        return [0.2]

    quick, late = Network([2], at_once, codec="none", **SMALL), Network([2], slow, codec="none", **SMALL)
    for network in (quick, late):
        network.all_reduce(_vectors(1, 2, 4000))
    assert quick.workers["worker", 0].rto_s == LEAST_RTO_S
    assert quick.workers["worker", 0].counts["again"] == 0
    assert late.workers["worker", 0].rto_s > 0.4
    again = late.workers["worker", 0].counts["again"]
    assert 0 < again <= 3 * SMALL["slots"]  # only before the first round trip was known


def test_copies_of_one_slot_come_twice_as_late_each_time() -> None:
    times: list[float] = []

    def script(source: Any, target: Any, frame: np.ndarray) -> list[float]:
        if _is_data(frame) and source == ("worker", 0):
            times.append(network.now_s)
            return []
        return [HOP_S]

    network = Network([2], at_once, codec="none", patience_s=2.0, **SMALL)
    network.script = script
    network.all_reduce(_vectors(1, 2, 32))
    gaps = np.diff(times)
    assert gaps[1] / gaps[0] == pytest.approx(2, rel=0.01)
    assert gaps[2] / gaps[1] == pytest.approx(2, rel=0.01)


def test_strangers_are_counted_and_change_nothing() -> None:
    network = Network([2], codec="none", key=b"secret", **SMALL)
    switch = network.switches["leaf", 0]
    vectors = _vectors(1, 2, 320)
    other = Worker(Membership(0, 2, codec="none", key=b"guess", **SMALL))
    other.begin(vectors[0], 0.0)
    forged = other.frames(0.0)

    def script(source: Any, target: Any, frame: np.ndarray) -> list[float]:
        if _is_data(frame) and target[0] == "worker":
            network.workers[target].arrived(forged, network.now_s)
        return [HOP_S]

    network.script = script
    assert not switch.arrived([("nobody", forged)], 0.0)
    assert not switch.arrived([(("worker", 0), forged)], 0.0)  # from where a worker sends
    join = ControlFrame(JOINS, 0, 0, 0, 2, other.shape, 4).frame(b"guess")
    assert not switch.arrived([("nobody", np.frombuffer(join, np.uint8)[None])], 0.0)
    assert switch.strangers == 2 * len(forged) + 1
    for got in network.all_reduce(vectors):
        assert np.array_equal(got, np.sum(vectors, axis=0, dtype=np.int32))
    assert all(worker.counts["strangers"] for worker in network.workers.values())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"job": 2}, 1),
        ({"worker": 2}, 2),
        ({"slots": 5}, 3),
        ({"workers": 3}, 3),
        ({"slots": 9}, 4),
        ({"session": 8}, 5),
        ({}, 6),
    ],
)
def test_who_does_not_agree_is_told_why(said: dict[str, int], reason: int) -> None:
    switch = AddingSwitch(SwitchSettings(2, 16, jobs=2))
    asked = {"job": 0, "worker": 0, "workers": 2, "slots": 4, "session": 7}

    def join(source: str, now_s: float = 0.0, **fields: int) -> ControlFrame | None:
        frame = ControlFrame(JOINS, **{**asked, **fields}).frame(b"")
        (_, answer), *_ = switch.arrived([(source, np.frombuffer(frame, np.uint8)[None])], now_s)
        return ControlFrame.read(answer, b"")

    assert join("a").kind != REFUSED
    answer = join("b", **said)
    assert (answer.kind, answer.what) == (REFUSED, reason)
    if reason == 5:  # the old session is over when nobody has spoken for it for a while
        assert join("b", IDLE_S + 0.1, **said).kind != REFUSED


def test_a_job_whose_workers_have_left_is_free_at_once() -> None:
    switch = AddingSwitch(SwitchSettings(2))

    def say(kind: int, source: int, session: int) -> int:
        frame = ControlFrame(kind, 0, 0, source, 2, slots=4, session=session).frame(b"")
        sent = switch.arrived([(source, np.frombuffer(frame, np.uint8)[None])], 0.0)
        answer = ControlFrame.read(sent[0][1], b"") if sent else None
        return answer.kind if answer else 0

    assert [say(JOINS, each, 7) for each in range(2)] == [JOINED, JOINED]
    assert say(LEAVE, 0, 7) == 0
    assert say(JOINS, 0, 8) == REFUSED  # worker 1 is still at work
    assert say(LEAVE, 1, 6) == 0  # not its session
    assert say(JOINS, 0, 8) == REFUSED
    assert say(LEAVE, 1, 7) == 0
    assert say(JOINS, 0, 8) == JOINED


def test_workers_that_differ_in_what_they_sum_are_not_mixed() -> None:
    network = Network([2], codec="none", **SMALL)
    switch = network.switches["leaf", 0]
    for name, worker in network.workers.items():
        worker._base = 7 * worker.member.worker  # as after vectors of different lengths
        worker.begin(np.ones(32, np.int32), 0.0)
        switch.arrived([(name, worker.frames(0.0))], 0.0)
    pool = switch.jobs[0].pool
    assert pool.counts["mismatched"] == 1
    assert not pool.held.any()


def test_a_late_result_from_above_is_not_taken_for_a_newer_one() -> None:
    shape = FrameShape("int32", 128)
    pool = SwitchSlots(1, 1, shape, 0, is_root=False)

    def frame(tsi: int) -> np.ndarray:
        made = shape.blank(1, 0)
        address(made, np.array([tsi], np.uint32), np.array([0]), np.array([0]))
        return made

    outcome = PoolOutcome()
    pool.arrive(0, frame(2), outcome)
    assert len(outcome.upward) == 1
    pool.from_above(frame(0), outcome)
    assert not outcome.complete
    pool.from_above(np.concatenate([frame(2), frame(2)]), outcome)
    assert [len(version) for version, _ in outcome.complete] == [1]


def test_jobs_have_slots_of_their_own_and_memory_is_bounded() -> None:
    switch = AddingSwitch(SwitchSettings(1, 8, jobs=2))
    for job in range(2):
        worker = Worker(Membership(0, 1, job=job, codec="none", **SMALL))
        frame = ControlFrame(JOINS, job, 0, 0, 1, worker.shape, 4).frame(b"")
        switch.arrived([(job, np.frombuffer(frame, np.uint8)[None])], 0.0)
        before = switch.size_bytes
        vector = np.arange(5000, dtype=np.int32)
        worker.begin(vector, 0.0)
        while not worker.done:
            for _, frames in switch.arrived([(job, worker.frames(0.0))], 0.0):
                worker.arrived(frames, 0.0)
        assert np.array_equal(worker.result(), vector)
        assert switch.size_bytes == before
    assert switch.jobs[0].pool is not switch.jobs[1].pool


def test_frames_are_those_of_the_public_program() -> None:
    worker = Worker(Membership(1, 2, job=5, slots=64, codec="none"))
    worker.begin(np.arange(70 * 256, dtype=np.int32) + 1, 0.0)
    frames = worker.frames(0.0)
    assert frames.shape == (64, 8 + 1024 + 2)
    assert frames[3, :16].tobytes() == bytes.fromhex("13 05 00000003 0003 00000301 00000302")
    worker._uses[:] = 1  # the second version has the top bit
    worker._fill(np.array([3]), np.array([67]))
    assert worker.frames(0.0)[0, :8].tobytes() == bytes.fromhex("13 05 00000043 8003")


def test_malformed_frames_do_no_harm() -> None:
    draw = np.random.default_rng(0)
    network = Network([2], codec="none", **SMALL)
    switch, source = network.switches["leaf", 0], ("worker", 0)
    for width in (1, 7, 8, control_bytes(b""), 138, 139, 1500):
        for kind in (0, 0x10, 0x11, 0x90, 0xA0, 0xB0, 0xD0, 0xFF):
            frames = draw.integers(0, 256, (3, width)).astype(np.uint8)
            frames[:, 0] = kind
            if width > 1:
                frames[:, 1] = 0
            if kind != 0x10 or width != 138:
                frames[:, 2 : min(width, 8)] |= 0x40  # slot numbers that are too large
            switch.arrived([(source, frames)], 0.0)
            network.workers[source].arrived(frames, 0.0)
            ControlFrame.read(frames[0].tobytes(), b"")
    assert control_bytes(b"") == CONTROL_BYTES


@pytest.mark.parametrize(
    "settings",
    [{"workers": MOST_WORKERS + 1}, {"workers": 0}, {"workers": 2, "slots": 1, "jobs": 2}, {"workers": 2, "jobs": 257}],
)
def test_settings_that_cannot_be(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError) as refused:
        SwitchSettings(**settings)
    assert refused.value.remedy


@pytest.mark.parametrize("knobs", [{"codec": "zip"}, {"payload_bytes": 100}, {"slots": 0}, {"job": 256}])
def test_memberships_that_cannot_be(knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Worker(Membership(0, 2, **knobs))


def test_reals_that_have_no_number() -> None:
    worker = Worker(Membership(0, 2))
    with pytest.raises(UsageError, match="infinities"):
        worker.begin(np.array([1, np.inf], np.float32), 0.0)
    with pytest.raises(UsageError, match="float32"):
        worker.begin(np.array([1], np.int32), 0.0)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 32])
@pytest.mark.parametrize("element", ["int32", "int8"])
def test_no_sum_overflows(element: str, workers: int) -> None:
    tops = np.ldexp(np.float32(1 - 2.0**-24), np.arange(-148, 129)).astype(np.float32)[:, None]
    for values in (tops, -tops):
        e = block_exponent.exponents(values)
        whole = block_exponent.to_whole(values, block_exponent.factors(e, workers, element), workers, element)
        total = whole.astype(np.int64) * workers
        assert (np.abs(total) <= block_exponent.LIMITS[element]).all()


def test_nothing_but_zeros_is_zero() -> None:
    e = block_exponent.exponents(np.zeros((1, 4), np.float32))
    assert e.tolist() == [NO_EXPONENT]
    assert not block_exponent.from_whole(np.zeros((1, 4), np.int32), block_exponent.factors(e, 2, "int32")).any()
