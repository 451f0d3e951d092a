"""Rules one after another at any site: the graph stays legal, computes the same and changes as declared (``tests/rule_chains.py``)."""

from __future__ import annotations

from collections import Counter

import pytest

import rule_chains
from algebra_cases import training
from ringwright.graph.algebra import RULES, RewriteError


def test_rules_one_after_another_change_no_output() -> None:
    tried = Counter[str]()
    assert [told for told, why in rule_chains.chains(12, seed=5, tried=tried) if why] == []
    assert len(tried) > 8
    assert tried["refused"] > 100
    assert "refused without a remedy" not in tried


def test_work_of_another_step_is_not_fused_with_this_ones() -> None:
    step = RULES["next-step"](training(4), "grad0", through="U0")
    with pytest.raises(RewriteError):
        RULES["cut"](step, "grad0", dim="n", parts=2, through="U0,U1")


def test_what_is_read_of_an_earlier_step_is_not_recomputed() -> None:
    with pytest.raises(RewriteError, match="of an earlier step"):
        RULES["recompute"](training(4), "w1")
