"""The same graphs on gloo ranks: what every process holds in the end is what the reference says, before and after each rule."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from algebra_cases import CASES
from ringwright.graph.algebra import RULES
from ringwright.graph.algebra.equality import outputs
from ringwright.model.values import LOCAL, PARTIAL, Placement, Value
from ringwright.model.workload import Mesh, Payload, RankClass, Task, Workload
from ringwright_lab.judges.graph_ranks import differing

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is absent: no real ranks"),
]


@pytest.mark.sampled(1, "p")
@pytest.mark.parametrize("p", [2, 4])
def test_every_rule_on_gloo_ranks(p: int) -> None:
    cases = [case for case in CASES if p in case.sizes]
    graphs = []
    for case in cases:
        after = case.make(p)
        assert outputs(after)
        for rule, at, knobs in case.rules:
            after = RULES[rule](after, at, **knobs)
        assert set(outputs(case.make(p))) <= set(after.value)
        graphs.append(after)
    wrong = differing(graphs, seed=p)
    assert {cases[at].name: names for at, names in wrong.items() if names} == {}


@pytest.mark.usefixtures("forked_ranks")
def test_stages_hand_their_results_on_to_the_ranks_that_lie_alike() -> None:
    """Two stages of two ranks, each of which has its own numbers; the second stage adds up what it is handed."""
    dims = (("n", 6),)
    own, partial = (Placement("dp", LOCAL),), (Placement("dp", PARTIAL),)
    listed = (("x", "s0", own), ("y", "s0", own), ("z", "s1", own), ("g", "s1", partial), ("sum", "s1", ()))
    values = tuple(Value(name, of, 48, dims, lies, "activation", "micro-batch", "int64") for name, of, lies in listed)
    tasks = (
        Task("first", "s0", "F", 1.0, reads=(("x", 0),), writes=("y",)),
        Task("second", "s1", "F", 1.0, reads=(("z", 0),), writes=("g",)),
    )
    handed = Payload("handed", "s0", "send-recv", 48, (), "pp", ("first",), (("second", 0),), "micro-batch", peer="s1")
    added = Payload("added", "s1", "all-reduce", 48, ("dp",), "dp", ("second",), (), "micro-batch")
    payloads = (replace(handed, source="y", result="z"), replace(added, source="g", result="sum"))
    classes = tuple(RankClass(f"s{at}", {"pp": at}) for at in range(2))
    mesh = Mesh((("pp", 2), ("dp", 2)))
    step = Workload("stages", mesh, classes, tasks, payloads=payloads, micro_batches=2, values=values)
    assert outputs(step) == ("sum",)
    assert differing([step]) == {0: []}
