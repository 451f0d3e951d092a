"""The loop of jobs keeps its promises: on random jobs, on small ones by hand, and on what a workload asks of it."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import job_cases as cases
from ringwright.engines.job.flat import FlatJob, InstanceTimes, Interference
from ringwright.engines.job.loop import Loop
from ringwright.engines.job.run import simulate
from ringwright.ground.errors import UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Gate, Queue, Task
from ringwright.native import engine
from ringwright.workloads.chain import ChainLayer, chain

COLUMNS = ("ready", "start", "moved", "end")

# ------------------------------------------------------------------------------------------ what the oracle promises
SEEDS = range(150)


def test_nothing_begins_before_its_predecessors_end() -> None:
    for seed in SEEDS:
        flat = cases.random_job(seed)
        times = Loop(flat).run()
        before, after = flat.edges()
        before, after = before[times.ready[after] >= 0], after[times.ready[after] >= 0]
        assert (times.end[before] >= 0).all()
        last = np.zeros(flat.n, np.int64)
        np.maximum.at(last, after, times.end[before])
        known = times.ready >= 0
        assert (times.ready[known] == last[known]).all(), f"seed {seed}"
        for one, other in itertools.pairwise(COLUMNS):
            begun = getattr(times, other) >= 0
            assert (getattr(times, one)[begun] <= getattr(times, other)[begun]).all(), f"seed {seed}"


def test_streams_run_in_key_order_and_one_at_a_time() -> None:
    for seed in SEEDS:
        flat = cases.random_job(seed)
        times = Loop(flat).run()
        for queue in np.flatnonzero(flat.queues.strict):
            mine = np.flatnonzero(flat.queue == queue)
            mine = mine[np.argsort(flat.key[mine], kind="stable")]
            ran = times.end[mine] >= 0
            assert (ran[:-1] >= ran[1:]).all(), f"seed {seed}: something passed what never ran"
            mine = mine[ran]
            assert (times.end[mine[:-1]] <= times.start[mine[1:]]).all(), f"seed {seed}"


def test_windows_are_kept() -> None:
    for seed in SEEDS:
        flat = cases.random_job(seed)
        flat = dataclasses.replace(flat, size=np.ceil(flat.size * 10))
        times = Loop(flat).run()
        for queue in np.flatnonzero(~flat.queues.strict):
            mine = np.flatnonzero((flat.queue == queue) & (times.end > times.start))
            for each in mine:
                others = (
                    (times.start[mine] <= times.start[each]) & (times.end[mine] > times.start[each]) & (mine != each)
                )
                same_time = (times.start[mine] == times.start[each]) & others
                before = flat.size[mine[others & ~same_time]].sum()
                together = before + flat.size[mine[same_time]].sum() + flat.size[each]
                largest = flat.size[[*mine[same_time], each]].max()
                window = flat.queues.window[queue]
                if flat.queues.blocking[queue]:
                    assert together - largest < max(window, 1e-9) or before == 0, f"seed {seed}"
                else:
                    assert together <= max(window, largest), f"seed {seed}"


def test_who_is_slower_by_himself_leaves_more_to_others() -> None:
    """An anomaly of shares: operation 0, which all wait for, ends earlier where more latency makes the one beside it take longer.

    Both move what they did. Alone the other takes 2.6 or 10.3 (thousands of ps) and asks for 0.75 or 0.19 of the link, of which 0
    asks for 0.8: together too much, or just enough. Served message by message the late ones would get in the way.
    """

    def ends(other_ps: int, share: float) -> list[int]:
        flat = cases.job(
            [11_600, other_ps], [0, 1], cases.communication(2, streams=0), loads=[(0, 0, 0.8), (1, 0, share)]
        )
        return Loop(flat).run().end.tolist()

    (first, other), (first_later, other_later) = ends(2_600, 0.75), ends(10_300, 0.19)
    assert (first, first_later) == (13_062, 11_600)
    assert other < other_later == 10_300


class _Suspicious(Loop):
    """Looks at every queue again when nothing is left to do, and remembers what then still started."""

    missed: tuple[int, ...] = ()

    def _dispatch(self, now: int) -> None:
        super()._dispatch(now)
        begun = self.start_at.copy()
        for queue in range(len(self.next)):
            self._touch(queue)
        super()._dispatch(now)
        self.missed += tuple(at for at, (old, new) in enumerate(zip(begun, self.start_at, strict=True)) if old != new)


def test_no_queue_is_forgotten() -> None:
    for seed in range(300):
        loop = _Suspicious(cases.random_job(seed))
        loop.run()
        assert not loop.missed, f"seed {seed}"


def test_an_open_queue_is_never_idle_beside_what_is_ready() -> None:
    for seed in range(60):
        r = np.random.default_rng(seed)
        n = 40
        made = r.integers(0, 500, n)  # tasks of their own streams release the operations at various times
        flat = cases.job(
            [*made.tolist(), *r.integers(1, 40, n).tolist()],
            [*range(n), *[n] * n],
            cases.communication(1, float(r.choice([1, 2, 5])), streams=n),
            edges=[(at, n + at) for at in range(n)],
            key=r.integers(0, 3, 2 * n),
        )
        times = Loop(flat).run()
        order = n + np.argsort(times.moved[n:], kind="stable")
        clock = 0
        for place, each in enumerate(order):
            clock = max(clock, int(times.ready[order[place:]].min()))
            assert times.moved[each] == clock, f"seed {seed}"
            clock += int(flat.work_ps[each])
        assert times.end.max() == clock


def test_no_more_than_one_whole_resource_is_ever_used() -> None:
    for seed in SEEDS:
        flat = dataclasses.replace(cases.random_job(seed), interference=Interference())
        times = Loop(flat).run()
        on_wire = np.flatnonzero((times.end > times.moved) & (flat.queue >= 0) & ~flat.queues.strict[flat.queue])
        rows = {at: slice(flat.load_start[at], flat.load_start[at + 1]) for at in on_wire}
        for resource in range(flat.n_resources):
            shares = {at: flat.share[rows[at]][flat.load[rows[at]] == resource].sum() for at in on_wire}
            used = [at for at in on_wire if shares[at] > 0]
            if used:
                # Over any busy stretch the work done, at its shares, takes at least its sum; an end is late by 1 ps at most,
                # and each of the changes of rate rounds by half a picosecond.
                first, last = min(times.moved[used]), max(times.end[used])
                work = sum(shares[at] * flat.work_ps[at] for at in used)
                assert work <= last - first + 1 + len(on_wire), f"seed {seed}"


# --------------------------------------------------------------------------------------------- small jobs, by hand
def both(flat: FlatJob) -> InstanceTimes:
    found = Loop(flat).run()
    if hasattr(engine, "job"):
        *times, events = engine.job(flat)
        assert [each.tolist() for each in times] == [getattr(found, name).tolist() for name in COLUMNS]
        assert events == found.events
    return found


def test_equal_keys_go_in_the_order_listed_behind_a_task_and_behind_control() -> None:
    for first, work in ((0, 7), (-1, 0)):
        edges = [(0, 1), (0, 2), (0, 3)]
        flat = cases.job([work, 1, 2, 3], [first, 1, 1, 1], cases.communication(streams=1), edges=edges)
        assert both(flat).moved.tolist() == [0, work, work + 1, work + 3]


def test_two_that_share_a_link_slow_each_other_and_go_on_at_full_rate_alone() -> None:
    flat = cases.job([100, 40], [0, 1], cases.communication(2), loads=[(0, 0, 1.0), (1, 0, 1.0)])
    assert both(flat).end.tolist() == [140, 80]


def test_who_asks_for_little_of_a_link_gets_it_and_the_others_share_the_rest() -> None:
    queues = cases.communication(3)
    loads = [(0, 0, 0.2), (1, 0, 1.0), (2, 0, 0.9)]
    assert both(cases.job([100, 40, 36], [0, 1, 2], queues, loads=loads)).end.tolist() == [100, 91, 81]


def test_what_a_link_has_left_is_handed_out_by_claims() -> None:
    """Three groups as one, or one by one, beside another operation: the same."""
    one = cases.job([90, 100], [0, 1], cases.communication(2), loads=[(0, 0, 0.9), (1, 0, 1.0)])
    three = cases.job(
        [90, 90, 90, 100],
        [0, 1, 2, 3],
        cases.communication(4),
        loads=[(0, 0, 0.3), (1, 0, 0.3), (2, 0, 0.3), (3, 0, 1.0)],
        claims=[1 / 3, 1 / 3, 1 / 3, 1.0],
    )
    assert both(one).end.tolist() == [162, 181]
    assert both(three).end.tolist() == [162, 162, 162, 181]


@pytest.mark.skipif(not hasattr(engine, "job"), reason="no compiled engine")
def test_a_link_named_twice_is_refused() -> None:
    flat = cases.job([100], [0], cases.communication(), loads=[(0, 0, 1.0), (0, 0, 0.5)])
    with pytest.raises(ValueError, match="load: one twice"):
        engine.job(flat)


def test_tokens_of_a_tenth_fit_ten_times_and_control_gives_them_back() -> None:
    n = 10
    queues = cases.communication(0, streams=n + 1)
    flat = cases.job(
        [5] * n + [5, 0],
        [*range(n), n, -1],
        queues,
        edges=[(0, n + 1)],
        tokens=[(at, 0, 0.1) for at in range(n + 1)] + [(n + 1, 0, -0.1)],
        capacity=[1.0],
    )
    assert both(flat).start.tolist() == [0] * n + [5, 5]


def test_what_is_wanted_twice_of_one_pool_is_wanted_together() -> None:
    flat = cases.job([5], [0], cases.communication(0, streams=1), tokens=[(0, 0, 1.0), (0, 0, 1.0)], capacity=[1.0])
    assert both(flat).end.tolist() == [-1]


def test_fractions_in_flight_leave_nothing_behind() -> None:
    # 0.1 + 0.2 - 0.1 - 0.2 is not 0: the large one would wait for a window that never empties.
    flat = cases.job([1, 1, 1], [0] * 3, cases.communication(1, 0.5, blocking=False), size=[0.1, 0.2, 9.0])
    assert both(flat).start.tolist() == [0, 0, 2]


def test_a_gate_closes_while_the_other_class_waits_or_runs_and_while_a_tagged_task_runs() -> None:
    queues = dataclasses.replace(cases.communication(2, streams=1), traffic=np.array([-1, 0, 1], np.int32))
    work, queue = [10, 4, 4, 6], [0, 1, 1, 2]
    gates = {"waiting": ([(1, 0, -1, 0)], 4), "running": ([(1, 0, -1, 1)], 8), "tag": ([(1, -1, 2, 1)], 10)}
    for name, (gate, opens) in gates.items():
        flat = cases.job(work, queue, queues, gates=gate, tag=[2, -1, -1, -1])
        assert both(flat).start[3] == opens, name


def test_issuing_takes_its_thread_and_latency_overlaps() -> None:
    flat = cases.job([10, 10], [0, 0], cases.communication(1, 2, issue_ps=3), latency_ps=[20, 20])
    times = both(flat)
    assert times.start.tolist() == [0, 3]
    assert times.moved.tolist() == [23, 33]
    assert times.end.tolist() == [33, 43]


# ------------------------------------------------------------------------------------------------- from a workload
def test_a_gate_of_a_class_that_no_operation_is_of_is_always_open() -> None:
    plain = chain("toy", [ChainLayer(2, 2, 3), ChainLayer(2, 2, 6)])
    for state in ("waiting", "running"):
        gated = plain.with_policy("gated", queue=Queue(gates=(Gate(0, 5, state),)))
        assert simulate(gated, LinkCosts(1.0)).step_s == simulate(plain, LinkCosts(1.0)).step_s


def test_control_that_takes_tokens_is_refused() -> None:
    plain = chain("toy", [ChainLayer(2, 2, 3)])
    of = plain.tasks[0].of
    control = Task("hold", of, "CTRL", per="step", demands=(("slots", 1.0),))
    with pytest.raises(UsageError, match="hold takes tokens"):
        simulate(dataclasses.replace(plain, tasks=(*plain.tasks, control)), LinkCosts(1.0))
