"""Rules at disjoint sites commute; ``tests/rule_pairs.py 1000`` draws many more."""

from __future__ import annotations

import rule_pairs


def test_rules_at_disjoint_sites_commute() -> None:
    drawn = list(rule_pairs.pairs(40, seed=3))
    assert [what for what, agree in drawn if not agree] == []
    assert len({what for what, _ in drawn}) > 30
