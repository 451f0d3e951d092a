"""A switch whose kernel adds: frame by frame the answers of the one in Python, and words of its own where there is no XDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringwright.execute.switched.frames import (
    CONTROL_BYTES,
    DATA,
    JOIN,
    JOINED,
    LEAVE,
    REFUSED,
    ControlFrame,
    FrameShape,
    address,
)
from ringwright.execute.switched.switch import ABOVE, IDLE_S, SwitchSettings
from ringwright.execute.switched.worker import Membership, Worker
from ringwright.execute.switched.xdp.tables import SIZES, SwitchTables
from ringwright.ground.errors import UsageError
from switched_kernel import DROPPED, OWN, PASSED, TriedSwitch, packet, tables_or_skip
from switched_network import HOP_S, Network

pytestmark = pytest.mark.once
SLOTS = 4
Made = Callable[[SwitchSettings], TriedSwitch]


@pytest.fixture(scope="module")
def loaded() -> Iterator[list[SwitchTables]]:
    """Give three loaded programs."""
    made = [tables_or_skip(2 * SLOTS) for _ in range(3)]
    yield made
    for each in made:
        each.loaded.close()


@pytest.fixture
def made(loaded: list[SwitchTables]) -> Iterator[Made]:
    """Give what makes a switch of one network, three at most; both sides have counted alike at the end."""
    switches: list[TriedSwitch] = []

    def one(settings: SwitchSettings) -> TriedSwitch:
        switches.append(TriedSwitch(settings, loaded[len(switches)]))
        return switches[-1]

    yield one
    for each in switches:
        each.agrees()


class HostileWeather:
    """Loses, doubles and delays frames by lot, and now and then writes nonsense into a header or a token."""

    def __init__(self, seed: int) -> None:
        self.draw, self.nonsense = np.random.default_rng(seed), 0.1

    def __call__(self, source: Any, target: Any, frame: np.ndarray) -> list[float]:
        draw = self.draw
        if draw.random() < 0.1:
            return []
        if target[0] != "worker" and _is_data(frame) and draw.random() < self.nonsense:
            frame[int(draw.integers(-10, 8))] ^= 1 << int(draw.integers(8))
        copies = 1 + (draw.random() < 0.2)
        return [HOP_S + (draw.random() < 0.2) * float(draw.uniform(0, 0.05)) for _ in range(copies)]


def _is_data(frame: np.ndarray) -> bool:
    return frame[0] >> 4 == DATA


@pytest.mark.parametrize("tree", [[3], [2, 1]])
@pytest.mark.parametrize("payload_bytes", [128, 256, 512, 1024])
@pytest.mark.parametrize("codec", ["none", "int8"])
def test_every_answer_is_that_of_the_switch_in_python(
    made: Made, tree: list[int], payload_bytes: int, codec: str
) -> None:
    key = b"secret" * (payload_bytes < 512)
    network = Network(
        tree,
        HostileWeather(payload_bytes),
        patience_s=5.0,
        made=made,
        codec=codec,
        key=key,
        payload_bytes=payload_bytes,
        slots=SLOTS,
    )
    draw = np.random.default_rng(payload_bytes)
    for worker in network.workers.values():
        worker._base = (1 << 32) - 20  # chunk numbers wrap around in the first vector
    for _ in range(2):
        values = draw.integers(-(1 << 30), 1 << 30, (len(network.workers), 11, payload_bytes // 4))
        if codec == "none":
            network.all_reduce([*values.astype(np.int32).reshape(len(values), -1)])
        else:  # as many exponents as chunks
            scaled = values.astype(np.float32) * 2.0 ** draw.integers(-90, 90, (*values.shape[:2], 1)).astype(
                np.float32
            )
            network.all_reduce([*scaled.reshape(len(values), -1)])
    assert all(each.counts["results"] for each in network.workers.values())


@pytest.mark.parametrize("block", range(4))
def test_any_weather_gives_exact_sums_and_names_the_dead(loaded: list[SwitchTables], block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        rest = iter(loaded)
        tree = [[3], [2, 2], [4], [1, 2]][seed % 4]
        network = Network(
            tree,
            HostileWeather(seed),
            patience_s=8.0,
            made=lambda settings, rest=rest: TriedSwitch(settings, next(rest)),
            codec="none",
            key=b"secret",  # nonsense in a header is then the only nonsense
            payload_bytes=128,
            slots=SLOTS,
        )
        network.script.nonsense = 0.0
        victim = ("worker", seed % sum(tree))
        draw = np.random.default_rng(seed)

        def look(net: Network, victim: Any = victim, dies: bool = seed % 5 == 0) -> None:
            if dies and net.now_s > 0.02:
                net.dead.add(victim)

        vectors = [draw.integers(-(1 << 31), 1 << 31, 500).astype(np.int32) for _ in network.workers]
        for got in network.all_reduce(vectors, look):
            assert got is None or np.array_equal(got, np.sum(vectors, axis=0, dtype=np.int32)), seed
        assert bool(network.errors) == (victim in network.dead), seed
        for name, error in network.errors.items():
            same = network.above[name] == network.above[victim]
            local = network.workers[victim].member.worker
            who = f"worker {local} " if same else f"branch {network.above[victim][1]} "
            assert error.what.startswith(who), (seed, error.what)


def test_frames_that_fit_no_rule_change_nothing(made: Made) -> None:
    switch = made(SwitchSettings(2, 2 * SLOTS, jobs=2))
    draw = np.random.default_rng(5)
    shape = FrameShape("int32", 128)
    for number in range(4):
        said = ControlFrame(JOIN, number // 2, 0, number % 2, 2, shape, SLOTS).frame(b"")
        switch.arrived([(number, np.frombuffer(said, np.uint8)[None])], 0.0)
    for _ in range(600):  # by members of both jobs, of any width, version, slot and chunk
        number = int(draw.integers(4))
        frame = shape.blank(1, int(draw.integers(3)))
        tsi, slot, version = (np.array([int(draw.integers(most))]) for most in (3, SLOTS + 2, 2))
        address(frame, tsi, slot, version)
        width = int(draw.choice([shape.width, shape.width, shape.width - 1, shape.width + 1, 60]))
        switch.arrived([(number, np.resize(frame[0], width)[None])], 0.0)
    assert min(switch.twin.counts()[name] for name in ("added", "stale", "mismatched", "malformed", "strangers")) > 10


def test_results_that_nobody_waits_for_are_not_taken(made: Made) -> None:
    switch = made(SwitchSettings(2, SLOTS, branch=1))
    shape = FrameShape("int32", 128)
    for kind, source in ((JOIN, 0), (JOIN, 1), (JOINED, ABOVE)):
        said = ControlFrame(kind, 0, 0, source if kind == JOIN else 1, 2, shape, SLOTS).frame(b"")
        switch.arrived([(source, np.frombuffer(said, np.uint8)[None])], 0.0)
    frames = []
    for chunk in (0, SLOTS):
        made_ = shape.blank(1, 0)
        address(made_, np.array([chunk], np.uint32), np.array([0]), np.array([0]))
        shape.values(made_)[:] = chunk + 1
        frames.append(made_)
    first, second = frames
    kinds = [  # who sends what, and how many answers that has
        (0, first, 0),
        (ABOVE, first, 0),  # worker 1 has not been heard
        (1, first, 1),
        (ABOVE, second, 0),  # another chunk
        (ABOVE, first, 2),
        (ABOVE, first, 0),  # a copy
        (0, first, 1),
    ]
    for source, frame, answers in kinds:
        assert len(switch.arrived([(source, frame)], 0.0)) == answers


def test_thirty_two_workers_fill_the_bitmap(made: Made) -> None:
    network = Network([32], made=made, codec="none", payload_bytes=128, slots=2)
    vectors = [np.arange(100, dtype=np.int32) * number for number in range(32)]
    for got in network.all_reduce(vectors):
        assert np.array_equal(got, np.sum(vectors, axis=0))


def test_a_new_session_forgets_the_workers_of_the_last(made: Made) -> None:
    switch = made(SwitchSettings(2, SLOTS))
    for session, workers in ((7, (0, 1)), (8, (0,))):
        for number in workers:
            member = Membership(number, 2, codec="none", payload_bytes=128, slots=SLOTS, session=session)
            for kind in (JOIN, LEAVE):
                said = ControlFrame(kind, 0, 0, number, 2, member.shape, SLOTS, session=session).frame(b"")
                if kind == JOIN or session == 7:
                    switch.arrived([((session, number), np.frombuffer(said, np.uint8)[None])], 0.0)
    worker = Worker(member)
    worker.begin(np.ones(32, np.int32), 0.0)
    frames = worker.frames(0.0)
    for source in ((7, 0), (7, 1), (8, 0)):
        switch.arrived([(source, frames)], 0.0)
    assert switch.counts()["strangers"] - switch.before["strangers"] == 2
    assert switch.twin.jobs[0].pool.counts["added"] == 1


def test_a_job_at_work_in_the_kernel_is_not_taken_over(made: Made) -> None:
    switch = made(SwitchSettings(2, SLOTS))
    members = [
        Membership(each, 2, codec="none", payload_bytes=128, slots=SLOTS, session=session)
        for session, each in ((7, 0), (7, 1), (8, 0))
    ]

    def join(number: int, now_s: float) -> int:
        member = members[number]
        said = ControlFrame(JOIN, 0, 0, member.worker, 2, member.shape, SLOTS, session=member.session).frame(b"")
        ((_, answer),) = switch.arrived([(number, np.frombuffer(said, np.uint8)[None])], now_s)
        control = ControlFrame.read(answer, b"")
        assert control is not None
        return control.kind

    assert [join(each, 0.0) for each in (0, 1)] == [JOINED, JOINED]
    worker = Worker(members[0])
    worker.begin(np.ones(32, np.int32), 5.0)
    switch.arrived([(0, worker.frames(5.0))], 5.0)
    assert join(2, 5.0) == REFUSED
    assert join(2, 5.0 + IDLE_S + 0.1) == JOINED


def test_what_is_for_others_goes_on_untouched(loaded: list[SwitchTables]) -> None:
    switch = TriedSwitch(SwitchSettings(2, SLOTS), loaded[0])
    shape = FrameShape("int32", 128)
    ours = packet(("10.9.0.9", 4000), shape.blank(1, 0).tobytes())
    changes = {
        "Ethernet": (12, b"\x86\xdd"),
        "options": (14, b"\x46"),
        "a fragment": (20, b"\x20\x00"),
        "TCP": (23, b"\x06"),
        "another host": (30, b"\x0a\x09\x00\x01"),
        "another port": (36, b"\x00\x01"),
    }
    for name, (at, new) in changes.items():
        frame = ours[:at] + new + ours[at + len(new) :]
        assert switch.tables.loaded.run(switch.tables.adds, frame) == (PASSED, frame), name
    for size in range(14, 50):
        assert switch.tables.loaded.run(switch.tables.adds, ours[:size]) == (PASSED, ours[:size])
    assert switch.tables.loaded.run(switch.tables.adds, ours)[0] == DROPPED


def test_the_kernel_loses_a_share_by_lot(loaded: list[SwitchTables]) -> None:
    switch = TriedSwitch(SwitchSettings(2, SLOTS), loaded[0])
    switch.lose(0.5)
    control = packet(("10.9.0.9", 4000), bytes(CONTROL_BYTES))
    passed = sum(switch.tables.loaded.run(switch.tables.adds, control)[0] == PASSED for _ in range(400))
    assert 120 < passed < 280  # eight standard deviations
    assert switch.counts()["lost"] - switch.before["lost"] == 400 - passed
    with pytest.raises(UsageError):
        switch.lose(1.0)
    switch.lose(0.0)
    assert switch.own == OWN


def test_both_sides_lay_their_tables_out_alike(loaded: list[SwitchTables]) -> None:
    assert {name: loaded[0].loaded.value_bytes(name) for name in SIZES} == SIZES
