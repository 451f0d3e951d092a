"""``simulate --rewrite``: rules before the policies, named in the answer; what does not apply says why."""

from __future__ import annotations

import json

import pytest

from ringwright.cli import main

STEP = ["simulate", "--model", "gpt3-125m", "--gpus", "2", "--fabric", "switch:2", "--policy", "none"]
PARAMETERS = 75  # gradients, each an all-reduce of its own without a policy
SPLIT = ["--rewrite", "split-all-reduce:role=dp"]


def test_a_rewritten_step_is_simulated_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STEP, *SPLIT]) == 0
    text = capsys.readouterr().out
    assert "Rewritten  the graph of the step, which computes the same" in text
    assert f"none: split-all-reduce at {PARAMETERS} places" in text
    assert main([*STEP, *SPLIT, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert [each["rule"] for each in row["applied"]] == ["split-all-reduce"] * PARAMETERS
    assert main([*STEP, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["rows"][0]
    assert plain["applied"] == []
    assert row["by_role"]["dp"]["operations"] == 2 * plain["by_role"]["dp"]["operations"]


@pytest.mark.parametrize(
    ("rule", "says"), [("split:role=dp", "no rule is called"), ("cut:at=none,dim=h", "is no task")]
)
def test_a_rule_that_does_not_apply_says_why(rule: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STEP, "--rewrite", rule]) == 2
    assert says in capsys.readouterr().err
