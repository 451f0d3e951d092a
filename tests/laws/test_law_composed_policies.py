"""Every ordered pair of policies runs, or declines with its reason in words that a user knows; orders that are alike say so.

Pairs are drawn; ``scripts/policy-pairs`` holds all of them, on any job.
"""

from __future__ import annotations

import random
import re
from itertools import product

import pytest

from ringwright.fabrics import fabric
from ringwright.jobs import model_job, rows
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import DECLINES, Job, answer
from ringwright.model.registry import schedulers
from ringwright.schedulers.compose import PolicyConflictError

pytestmark = pytest.mark.once
SLUGS = [each.slug for each in schedulers()]
PAIRS = [*product(SLUGS, repeat=2)]
MACHINE = "switch:{},rate=100Gb/s"
# Jobs of few layers, each with how many pairs are drawn of it.
DRAWN = {
    ("gpt2", 4, None, "training"): 24,
    ("bert-large", 4, "zero1", "training"): 10,
    ("gpt3-125m", 8, "tp2,pp2,dp2,vp2,sp", "training"): 8,
    ("mixtral-8x7b", 4, "ep4", "training"): 10,
    ("mixtral-8x7b", 4, "ep4", "decode"): 12,
    ("vgg16", 4, None, "training"): 10,
}
NAMED = re.compile(r"\ball\.\w|\bstage\d|\bB of micro-batch|\brank \d+ step|the job stops")


def job(model: str, gpus: int, form: str | None, mode: str, layers: int = 2) -> Job:
    is_text = model != "vgg16"
    dims = {"layers": 4 if form and "vp2" in form else layers} if is_text else {}
    batches = 4 if form and "pp2" in form else 1
    spec = WorkloadSpec(model, gpus, form, batches, 2, 64 if is_text else None, mode=mode, dims=dims)
    return model_job.made(model_job.GeneratedJobSpec(spec), fabric(MACHINE.format(gpus)))


def held(made: Job, outer: str, inner: str) -> float | None:
    """Run a pair; return its step in s, None where it declines in words."""
    declined = None
    try:
        return answer(made, f"{outer}+{inner}").step_s
    except DECLINES as error:
        declined = error
    assert declined.what.strip()
    assert not NAMED.search(declined.what), declined.what
    assert declined.remedy
    return None


def test_policies_by_which_a_step_would_never_end_decline_together() -> None:
    made = job("gpt2", 8, "tp2,pp2,dp2,vp2", "training")
    assert held(made, "pytorch-ddp", "fold3d") is None
    with pytest.raises(PolicyConflictError, match=r"by pytorch-ddp and fold3d together .* would never end"):
        answer(made, "pytorch-ddp+fold3d")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", DRAWN, ids=lambda case: f"{case[0]}-{case[2]}-{case[3]}")
def test_pairs_on_other_jobs(case: tuple[str, int, str | None, str]) -> None:
    made, ran = job(*case), 0
    for outer, inner in random.Random(f"{case}").sample(PAIRS, DRAWN[case]):
        ran += held(made, outer, inner) is not None
    assert ran


@pytest.mark.parametrize(("outer", "inner"), [("coconet", "poseidon"), ("dear", "poseidon"), ("coconet", "pace")])
def test_gradients_that_are_picked_by_name_are_put_in_place_first(outer: str, inner: str) -> None:
    """The outer one replaces what the inner one has picked: that is the reason, and the other order is what helps."""
    made = job("vgg16", 4, None, "training")
    (declined,) = [row for row in rows.document(made, ["none", f"{outer}+{inner}"])["rows"] if row["declined"]]
    assert f"{inner} picks gradients one by one, and {outer} replaces them" in declined["declined"]
    assert f"--policy {inner}+{outer}" in declined["declined_by"]["remedy"]
    assert held(made, inner, outer) is not None


def test_orders_that_are_alike_say_so_and_say_the_same() -> None:
    made = job("bert-large", 4, None, "training")
    _, one, other = rows.document(made, ["none", "p3+dear", "dear+p3"])["rows"]
    assert one["step_us"] == pytest.approx(other["step_us"], rel=1e-9)
    assert one["decided"] == other["decided"]
    assert any("dear+p3 and p3+dear: the order does not matter" in each for each in one["decided"])
    assert sum(each.startswith("p3: slices go by urgency") for each in one["decided"]) == 1


def test_orders_that_differ_do_not_say_so() -> None:
    made = job("bert-large", 4, None, "training")
    _, one, other = rows.document(made, ["none", "p3+bytescheduler", "bytescheduler+p3"])["rows"]
    assert one["step_us"] != pytest.approx(other["step_us"], rel=1e-9)
    assert not any("the order does not matter" in each for each in (*one["decided"], *other["decided"]))


def test_inference_without_skew_says_what_lina_needs() -> None:
    """All experts equally popular leave nothing to place: no word of gradients, and skew makes it another step."""
    made = job("mixtral-8x7b", 4, "ep4", "decode")
    plain, lina, even = rows.document(made, ["none", "lina", "lina:skew=8:plan=even"])["rows"]
    assert lina["step_us"] == pytest.approx(plain["step_us"], rel=1e-9)
    assert any("lina:skew=4" in each for each in lina["decided"])
    assert not any("gradient" in each for each in lina["decided"])
    assert even["step_us"] > 1.05 * plain["step_us"]
