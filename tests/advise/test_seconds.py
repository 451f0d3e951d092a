"""Seconds end the making of a space as they end its search: what came too late is said, and nothing is taken for refused."""

from __future__ import annotations

import math

import pytest

from ringwright.advise.advise import AdviceSpec, advise
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.settings import OPERATION, ORDER, Setting, Setup
from ringwright.advise.situation import Situation, of_model
from ringwright.advise.space import space
from ringwright.algorithms.searching import Deadline, OutOfTimeError, in_time, limited
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec

OVER = -math.inf  # of the monotonic clock: long ago


@pytest.fixture(scope="module")
def situation() -> Situation:
    machine = apply(fabric("torus:2x2"), ["link rank0>rank1 rate 20%"])
    return of_model(GeneratedJobSpec(WorkloadSpec("resnet-18", 4, "dp4", 1)), machine, "pytorch-ddp")


@pytest.fixture(autouse=True)
def _no_kept_programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path_factory.mktemp("programs")))


def test_what_came_too_late_is_said(situation: Situation) -> None:
    """Who does an operation has to be timed, and a plan round the fault searched for; how large buckets are has not."""
    result = Evaluator(situation).result(Setup())
    late = space(situation, result, ("nccl", "algorithm", "ddp", "switch"), until=OVER)
    assert late.stopped
    assert list(late.slots) == [ORDER]
    said = {what.partition(":")[0]: (what, why, remedy) for what, why, remedy in late.refused}
    assert "planned anew round the fault" in said["algorithm"][0]
    assert "all-reduce by nvls_tree with simple" in said["nccl"][0]
    assert {said[layer][1:] for layer in ("nccl", "algorithm")} == {
        ("seconds ended before it was made", "a longer --budget")
    }
    assert "no switch of" in said["switch"][1], "what is refused anyway is refused for its own reason"


def test_what_was_made_in_time_is_offered_in_the_order_of_its_layers() -> None:
    spec = GeneratedJobSpec(WorkloadSpec("resnet-18", 4, "dp4", 1))
    situation = of_model(spec, fabric("leaf-spine:4,per_leaf=2"), "pytorch-ddp:bucket_cap_mb=1:first_bucket_mb=1")
    result = Evaluator(situation).result(Setup())
    whole = space(situation, result, ("nccl", "algorithm", "ddp"))
    assert not whole.stopped
    assert list(whole.slots) == [f"{OPERATION}all-reduce", ORDER]
    layers = [each.layer for each in whole.slots[f"{OPERATION}all-reduce"]]
    assert layers == sorted(layers, key=("nccl", "algorithm").index), "though the algorithms are made last"
    assert "seconds ended" not in str(whole.refused)


def test_advice_without_seconds_says_that_it_was_stopped(situation: Situation) -> None:
    told = advise(situation, AdviceSpec(("algorithm", "ddp"), seconds=0.0))
    assert told["stopped"]
    assert any("all-reduce planned anew round the fault" in each["what"] for each in told["refused"])


def test_seconds_that_end_are_no_refusal(situation: Situation) -> None:
    ring = Setup((Setting("algorithm", f"{OPERATION}all-reduce", "ring", "", ""),))
    evaluator = Evaluator(situation)
    evaluator.run(Setup())
    with limited(OVER):
        for ask in (evaluator.least_s, evaluator.run):
            with pytest.raises(OutOfTimeError):
                ask(ring)
    assert evaluator.run(ring) == Evaluator(situation).run(ring)
    assert evaluator.run(ring).step_s


def test_a_block_ends_its_searches() -> None:
    with limited(OVER):
        assert Deadline(None).passed()
        assert Deadline(3600.0).passed()
        with limited(math.inf):  # within a block nothing lasts longer than the block
            assert Deadline(None).passed()
        with pytest.raises(OutOfTimeError):
            in_time()
    in_time()
    assert not Deadline(None).passed()
