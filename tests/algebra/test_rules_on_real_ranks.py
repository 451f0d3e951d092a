"""The same graphs on gloo ranks: what every process holds in the end is what the reference says, before and after each rule."""

from __future__ import annotations

import importlib.util

import pytest

from algebra_cases import CASES
from ringwright.algebra import RULES
from ringwright.algebra.equal import outputs
from ringwright.studies.graph_ranks import differing

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is absent: no real ranks"),
]


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
