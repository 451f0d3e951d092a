"""Syndicate: motifs that compose what they replace, networks that carry them, a walk that ends where trying all does."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

import algebra_cases as cases
import ringwright
from ringwright.costs.networks import NetworkCosts
from ringwright.engines.job.run import simulate
from ringwright.formats.exports.workload_json import workload_json
from ringwright.formats.sources.programs.workload_json import read_workload
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import UsageError, WorkloadError
from ringwright.model.rewrites import operations
from ringwright.model.stages import LinkCosts, NetworkedCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Gate, Queue, Rewrite, Workload
from ringwright.schedulers.decompose.syndicate import neighbour, searched, syndicate
from ringwright.schedulers.decompose.syndicate._motifs import (
    MotifPlan,
    MotifTimes,
    OperationPlan,
    every_plan,
    kinds_of,
    legs,
    plain,
)
from ringwright.schedulers.decompose.syndicate._plan import carried_out
from ringwright.schedulers.search import enumerated
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.papers.figures import syndicate as figures

NAMES = ("fast", "slow")
TWO = NetworkCosts({"fast": LinkCosts(4e6, ring=True), "slow": LinkCosts(1e6, ring=True)})
GRAPHS = {
    "all-reduce": cases.all_reduce,
    "reduce-scatter": cases.reduce_scatter,
    "all-gather": cases.all_gather,
    "all-to-all": cases.all_to_all,
}


# ---------------------------------------------------------------------------------------------- operations on networks
def two_sums() -> Workload:
    """Return two sums that are ready at one moment."""
    step = chain("two", [ChainLayer(0.0, 0.0, 4_000_000), ChainLayer(0.0, 1.0, 4_000_000)], ranks=2)
    return step.with_policy("plain", queue=Queue(), boundary="barrier")


def test_sums_on_two_networks_do_not_wait_for_each_other() -> None:
    step = RULES["on-network"](two_sums(), "layer0", network="fast")
    one = RULES["on-network"](step, "layer1", network="fast")
    other = RULES["on-network"](step, "layer1", network="slow")
    assert simulate(one, TWO, steps=3).step_s == pytest.approx(1 + 1 + 1)
    assert simulate(other, TWO, steps=3).step_s == pytest.approx(1 + 4)
    assert simulate(two_sums(), TWO, steps=3).step_s == simulate(one, TWO, steps=3).step_s


def test_what_names_no_network_that_is_there_is_refused() -> None:
    step = RULES["on-network"](two_sums(), "layer0", network="third")
    assert isinstance(TWO, NetworkedCosts)
    with pytest.raises(UsageError, match="there is no network 'third'") as caught:
        simulate(step, TWO)
    assert caught.value.remedy == "one of: fast, slow"
    with pytest.raises(UsageError, match="there is no network 'third'"):
        simulate(step, LinkCosts(1e6))
    with pytest.raises(RewriteError, match="is no name of a network"):
        RULES["on-network"](step, "layer0", network="")


def test_a_network_goes_along_with_a_file_and_keeps_buckets_apart(tmp_path: object) -> None:
    step = RULES["on-network"](two_sums(), "layer0", network="slow")
    path = tmp_path / "step.json"  # type: ignore[operator]
    path.write_bytes(workload_json(step))
    assert read_workload(path).payload["layer0"].network == "slow"
    fused = step.with_policy("all", rewrites=(Rewrite("fuse", settings={"caps_bytes": [1 << 40]}),))
    whole = two_sums().with_policy("all", rewrites=(Rewrite("fuse", settings={"caps_bytes": [1 << 40]}),))
    assert (len(operations(whole)), len(operations(fused))) == (1, 2)


def test_a_network_is_a_class_of_traffic() -> None:
    """Gates tell networks apart, whatever the roles of what they carry."""
    step = figures.recommender(4, 1.0)
    kinds = kinds_of(step)
    made = carried_out(step, kinds, plain(kinds, NAMES), NAMES)
    queue = made.policy.queue
    assert queue is not None
    assert queue.traffic == {"fast": 1}
    assert Gate(1, 1, "running") in queue.gates
    assert check(made) == []
    run = simulate(made, TWO, steps=3)
    spans = sorted(
        (start, end)
        for row in run.laid.rows
        if row.what == "operation"
        for at in range(3)
        for start, end in zip(run.starts(row, at).tolist(), run.ends(row, at).tolist(), strict=True)
    )
    assert len(spans) == 3 * len(step.payloads)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))  # one after another, exchanges and sums


# -------------------------------------------------------------------------------------------------------------- motifs
@pytest.mark.parametrize("p", [4, 6])
@pytest.mark.parametrize("op", list(GRAPHS))
def test_motifs_are_the_operation(op: str, p: int) -> None:
    """Every template in one, two and three ranges, on networks in turn, to the bit; along two axes by levels too."""
    for mesh in (cases.one(p), cases.two(p)):
        step = GRAPHS[op](p, mesh=mesh)
        (kind,) = kinds_of(step)
        for template in kind.templates:
            many = len(legs(op, template))
            for count in (1, 2, 3):
                networks = tuple(tuple(NAMES[(row + leg) % 2] for leg in range(many)) for row in range(count))
                made = carried_out(step, [kind], MotifPlan((OperationPlan(template, networks),), (0,)), NAMES)
                assert len(made.payloads) == many * count
                assert [each.network for each in made.payloads if not each.network] == []
                assert prove(step, made, draws=1).equal, (template, count)


def test_a_plan_takes_what_the_engine_says() -> None:
    step = figures.recommender(4, 1.5)
    kinds = kinds_of(step)
    timed, draw, plan = MotifTimes(step, TWO, kinds), random.Random(3), plain(kinds, NAMES)
    for _ in range(12):
        plan = neighbour(plan, kinds, NAMES, 3, draw)
        made = carried_out(step, kinds, plan, NAMES)
        assert simulate(made, TWO, steps=3).step_s == pytest.approx(timed.makespan(plan), rel=1e-6)


def test_no_plan_is_shorter_than_its_work_or_its_networks() -> None:
    step = figures.recommender(4, 2.0)
    timed = MotifTimes(step, TWO, kinds_of(step))
    start = plain(timed.kinds, NAMES)
    best = timed.makespan(searched(timed, start, NAMES, 5, 400, 0, 2))
    work = sum(task.seconds for task in step.tasks)
    on_both = sum(TWO.stages(each.op, each.size_bytes, (0, 1, 2, 3), "")[0].wire_s for each in step.payloads) / 1.25
    assert max(work, on_both) <= best <= timed.makespan(start)


def test_walks_end_where_trying_all_plans_does() -> None:
    step = figures.recommender(4, 1.0, 1)
    timed = MotifTimes(step, TWO, kinds_of(step))
    best = enumerated(every_plan(timed.kinds, NAMES, (1, 2), 6), timed.makespan, budget=100_000)
    assert best.is_best
    assert best.evaluated > 200

    def few(plan: MotifPlan) -> bool:
        return sum(each.motifs for each in plan.kinds) <= 6

    start = plain(timed.kinds, NAMES)
    found = [timed.makespan(searched(timed, start, NAMES, 2, 600, seed, 3, allowed=few)) for seed in range(10)]
    assert sum(each <= best.cost * (1 + 1e-9) for each in found) >= 9
    assert best.cost < 0.99 * timed.makespan(start)


# ------------------------------------------------------------------------------------------------------------ the system
def test_two_networks_are_kept_busy_and_what_was_done_is_told() -> None:
    step, costs = figures.recommender(8, 2.0), figures.networks()
    made = syndicate(step, costs)
    assert simulate(made, costs).step_s < simulate(step, costs).step_s
    assert {each.network for each in made.payloads} == {"rdma", "ethernet"}
    assert {"cut", "on-network"} <= {each.rule for each in made.applied}
    assert replayed(step, made.applied).payloads == made.payloads
    assert any("own clock" in each for each in made.assumptions)
    assert syndicate(step, costs) == made
    assert sum(each.size_bytes for each in made.payloads if each.op == "all-to-all") == sum(
        each.size_bytes for each in step.payloads if each.op == "all-to-all"
    )


def test_never_longer_than_a_library() -> None:
    for seed, parallel in enumerate(("tp2,sp,dp2", "fsdp", "pp2,zero1")):
        step = ringwright.job("gpt3-125m", gpus=4, parallel=parallel)
        costs = LinkCosts(5e10, latency_s=1e-6, ring=True)
        made = syndicate(step, costs, budget=20, restarts=1, seed=seed)
        assert simulate(made, costs, steps=4).step_s <= simulate(step, costs, steps=4).step_s * (1 + 1e-9)


def test_nothing_to_compose_is_declined() -> None:
    with pytest.raises(WorkloadError, match="no collective of several ranks"):
        syndicate(ringwright.job("gpt3-125m", gpus=1), LinkCosts(1e9))


def test_both_networks_together_have_the_sum_of_their_rates() -> None:
    assert figures.split_gain() == pytest.approx(1.25)
