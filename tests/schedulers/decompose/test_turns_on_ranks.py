"""Halves by turns, and what is computed again in a wait, on real ranks: equal to the bit, and done to the end behind slow links.

How much faster they are is measured by ``benchmarks/lab_decompose.py``: a test holds no clock.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from block_jobs import blocks
from ringwright.schedulers.decompose.oases import oases
from ringwright_lab.judges import graph_ranks
from turns_in_lab import LINK, halves, measured, seconds, waits

pytestmark = [
    pytest.mark.torch,
    pytest.mark.once,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("form", ["oases", "domino"])
def test_halves_are_equal_to_the_bit_on_gloo_ranks(form: str) -> None:
    step = blocks(2)
    assert graph_ranks.differing([step, oases(step, LINK, dim="b", form=form)], steps=1) == {0: [], 1: []}


def test_what_is_predicted_of_both() -> None:
    """The card: halves gain 1.25x or more where a sum takes about as long as a block; a wait hides 70 % of what it could."""
    step, made = halves()
    assert seconds(step) / seconds(made) >= 1.25
    in_wait, late, most = waits()
    assert seconds(late) - seconds(in_wait) >= 0.7 * most


@pytest.mark.lab
def test_orders_of_both_end_on_ranks_in_the_lab(tmp_path: Path) -> None:
    """An order whose waits go in a circle would stop; sleeping tasks alone take as long as they sleep."""
    steps = [*halves(), *waits()[:2]]
    for step, took in zip(steps, measured(tmp_path, steps), strict=True):
        assert took >= sum(step.task[name].seconds for name, _ in step.line("all"))
