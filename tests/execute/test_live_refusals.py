"""Live ranks refuse what would be wrong, with the reason; ranks that differ, leave or lag end in words, never in a hang."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from live_ranks import ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]

CASES = (
    "edits:1",
    "unfit:1",
    "no_group:1",
    "stale:1",
    "other_model:2",
    "other_policy:2",
    "other_order:2",
    "other_issue:2",
    "missing:2",
    "died:2",
    "led_away:2",
    "thrown:2",
    "left:2",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return ranks(tmp_path_factory.mktemp("live"), *CASES)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("clip", "clip_grad_norm_ between backward() and step() needs all gradients"),
        ("value", "clip_grad_value_ between"),
        ("scaler", "GradScaler.unscale_ between"),
        ("own", "an edit of .grad between backward() and step() needs all gradients, that of 0.weight too"),
        ("replaced", "an edit of .grad"),
        ("closure", "step(closure) needs the updates at once"),
        ("again", "a second backward() before step()"),
        ("hooks", "hooks around step()"),
    ],
)
def test_what_makes_a_barrier(found: dict[str, list[Any]], edit: str, words: str) -> None:
    said = found["edits"][0][edit]
    assert said.startswith("UsageError")
    assert words in said
    assert "try: " in said


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("order", "the program of the model fixes"),
        ("select", "cannot carry out the rewrite 'select'"),
        ("boundary", "there are barrier, layer and reads"),
        ("agreement", "'votes' is no agreement"),
        ("piece", "pieces of 2 B hold no number"),
        ("lbfgs", "may need all gradients at once"),
        ("stranger", "1 parameters of the optimiser are none of the model's"),
        ("both links", "both describe the emulated link"),
        ("frozen", "has no parameter that wants a gradient"),
        ("ddp", "DistributedDataParallel already sends"),
        ("device", "weight is on meta"),
    ],
)
def test_what_cannot_be_scheduled(found: dict[str, list[Any]], what: str, words: str) -> None:
    said = found["unfit"][0][what]
    assert said.startswith("UsageError")
    assert words in said


def test_no_process_group(found: dict[str, list[Any]]) -> None:
    assert "init_process_group" in found["no_group"][0]


def test_old_values_are_noticed(found: dict[str, list[Any]]) -> None:
    assert "0.weight has a new gradient, but no module waited for its last update" in found["stale"][0]


@pytest.mark.parametrize(
    ("case", "words"), [("other_model", "another model's parameters"), ("other_policy", "another plan of operations")]
)
def test_ranks_that_differ_from_the_start(found: dict[str, list[Any]], case: str, words: str) -> None:
    assert all(f"rank 1 has another {words.partition(' ')[2]} than rank 0" in said for said in found[case]), found[case]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("other_order", "would issue the operations of step 3 in different orders: rank 1 differs from rank 0"),
        ("other_issue", "the ranks have issued different operations: rank 1 differs from rank 0"),
    ],
)
def test_orders_that_differ(found: dict[str, list[Any]], case: str, words: str) -> None:
    for said in found[case]:
        assert str(said).startswith("RanksFailedError")  # a dictionary: another error than ours, or none was written
        assert words in said
        assert "rank 1 last announced operation '" in said
        assert "one model, policy and seed" in said


@pytest.mark.parametrize("agreement", ["leader", "static"])
def test_a_rank_that_lacks_an_operation_is_named(found: dict[str, list[Any]], agreement: str) -> None:
    for answer in found["missing"]:
        said = answer[agreement]
        assert "rank 0 has waited 2 s for operation '" in said
        assert "rank 1 lacks operation '" in said
        assert "0 of 6 in step 3" in said


def test_a_rank_that_died_is_named(found: dict[str, list[Any]]) -> None:
    said, gone = found["died"]
    assert gone == {"code": 7}
    assert "rank 1 has left" in said
    assert "its connection broke off" in said


def test_a_leader_that_does_not_answer(found: dict[str, list[Any]]) -> None:
    held, said = found["led_away"]
    assert held == "held"
    assert "rank 1 has waited 2 s in step 3, and rank 0, which leads, does not answer" in said


def test_an_exception_in_backward(found: dict[str, list[Any]]) -> None:
    other, thrower = found["thrown"]
    assert thrower["first"] == "ZeroDivisionError"
    assert "the last backward pass did not end" in thrower["then"]
    assert "rank 1: the last backward pass did not end" in other["first"]


def test_an_error_in_the_loop_reaches_the_others(found: dict[str, list[Any]]) -> None:
    other, leaver = found["left"]
    assert leaver == "ValueError: no more data"
    assert "rank 1: training stopped: no more data" in other
