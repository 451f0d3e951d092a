"""The account of overlap against fifty traces whose fusions and causes are known; and the public traces as they are."""

from __future__ import annotations

from collections import Counter

import pytest

from fusion_altered import altered
from fusion_cases import cases, halves
from fusion_made import made
from fusion_truth import Judged, KnownTrace
from ringwright.analysis.exposed.overlap import explained
from ringwright.analysis.exposed.overlap_account import OverlapAccount, account_rows
from shared_data import needs_shared_data, real

LEAST = 0.95
# causes of which a trace made by hand says all; of real ones the altered operations are known, and those causes they cannot have
EVERYWHERE = {"same-stream", "connections", "fusion-not-matched"}


def fusions_of(told: OverlapAccount) -> Counter[tuple[str, int | None, str, bool]]:
    return Counter((one.pattern, one.iteration, one.layer, one.fired) for one in told.fusions.all)


def judge(known: list[KnownTrace]) -> tuple[Judged, Judged, list[str]]:
    """Return the judgement of fusions and of causes, and what known keepers apart were not named."""
    fusions, causes, unnamed = Judged(), Judged(), []
    for one in known:
        trace, truth = one.read()
        told = explained(trace)
        fusions.add(fusions_of(told).elements(), (+truth.fusions).elements())
        kinds = EVERYWHERE if one.is_real else EVERYWHERE | {"same-communicator"}
        said = {(case.evidence["event"], case.reason) for case in [*told.cases, *told.unseen]}
        causes.add({pair for pair in said if pair[1] in kinds or pair[0] in truth.causes}, truth.causes.items())
        named = {row["what"] for row in account_rows(told)["apart"]}
        unnamed += [f"{one.name}: {what}" for what in truth.apart if not any(what in each for each in named)]
    return fusions, causes, unnamed


def assert_good(known: list[KnownTrace]) -> None:
    fusions, causes, unnamed = judge(known)
    assert min(fusions.precision, fusions.recall) >= LEAST, fusions
    assert min(causes.precision, causes.recall) >= LEAST, causes
    assert unnamed == []


def test_traces_made_by_hand() -> None:
    assert_good(made())


def test_twenty_of_the_fifty_are_real() -> None:
    tuned, judged = halves()
    assert (len(tuned), len(judged)) == (25, 25)
    assert len(made()) == 30
    assert len(altered()) == 20
    assert len({one.name for one in [*tuned, *judged]}) == 50


@needs_shared_data
def test_small_real_traces_altered() -> None:
    assert_good([one for one in altered() if one.name.startswith(("dlrm", "sampled"))])


@needs_shared_data
@pytest.mark.once
def test_some_of_fifty(pytestconfig: pytest.Config) -> None:
    """Two large real traces each time, beside what is made and the small ones above; in campaigns half of the fifty.

    Other draws: ``judge(cases(1))``; three were judged, two of them never looked at before."""
    large = [one for one in altered() if one.name in ("resnet-renamed", "queue-split")]
    assert len(large) == 2
    assert_good(cases()[::2] if pytestconfig.getoption("--campaigns") else large)


def real_account(name: str) -> OverlapAccount:
    from ringwright.formats.sources.gate.inputs import find
    from ringwright.formats.sources.kineto import read_kineto

    return explained(read_kineto(find([str(real(f"real/kineto/{name}"))])))


def causes_of(told: OverlapAccount) -> dict[str, int]:
    return dict(Counter(case.reason for case in told.cases))


@needs_shared_data
def test_a_data_parallel_job_whose_host_is_behind() -> None:
    """Five buckets in each of three steps; all begin at once and overlap little, for the host launches too late."""
    told = real_account("hta_nccl_data.json.gz")
    assert {key[0::3]: count for key, count in fusions_of(told).items()} == {("gradient-bucket", True): 5}
    assert sum(fusions_of(told).values()) == 15
    assert causes_of(told) == {"late-launch": 21}
    assert told.fusions.unsure == []
    assert told.unseen == []
    assert account_rows(told)["apart"] == []
    assert [text.split(";")[0] for text in account_rows(told)["unknown"]] == [
        "cannot tell: no launch names its layer",
        "cannot tell: the environment is not in the trace",
    ]


@needs_shared_data
def test_eight_ranks_of_a_recommendation_job() -> None:
    """Three buckets a rank; no pair of collective and product, for all-to-all precedes none."""
    told = real_account("param_dlrm_kineto.tar.gz")
    assert sum(fusions_of(told).values()) == 24
    assert {one.pattern for one in told.fusions.all} == {"gradient-bucket"}
    assert all(one.fired for one in told.fusions.all)
    assert set(causes_of(told)) == {"dependency", "late-launch"}


@needs_shared_data
def test_a_sampled_trace_shows_buckets_by_size_alone() -> None:
    told = real_account("hta_sampled_rank-0.json.gz")
    assert {(one.pattern, one.fired) for one in told.fusions.all} == {("gradient-bucket", True)}
    assert len(told.fusions.all) == 4
    gathers = [case for case in told.cases if case.evidence["op"] == "all-gather"]
    assert [(case.reason, told.ranks[0].phase(case.row)) for case in gathers] == [("cannot tell", "optimizer")] * 2


@needs_shared_data
@pytest.mark.once
def test_one_bucket_of_nearly_everything() -> None:
    """Per step a bucket of 1.5 MB and one of 1.8 GB, which begins when the backward pass ends."""
    told = real_account("hta_negative_queue_rank0.json.gz")
    assert len(told.fusions.all) == 10
    assert all(
        one.fired for one in told.fusions.all
    )  # embedding kernels of FBGEMM before reduce-scatters are no products
    large = [case for case in told.cases if case.reason == "bucket"]
    assert [case.row["size_bytes"] for case in large[1:]] == [4 * 447_923_396] * (len(large) - 1)
    assert sum(case.exposed_us for case in large) == pytest.approx(123_066, abs=1)
    assert len(told.unseen) == 10


@needs_shared_data
@pytest.mark.once
def test_one_reduction_that_stood_behind_an_all_to_all() -> None:
    told = real_account("hta_trace_diff_control.json.gz")
    assert len([one for one in told.fusions.all if one.fired]) == len(told.fusions.all) == 18
    (behind,) = [case for case in told.cases if case.reason == "same-communicator"]
    assert (
        behind.evidence["event"] == 81_842
    )  # called 8.9 ms before it began; the all-to-all before it ended 2 us before
    assert behind.evidence["text"] == "ready 7,566 us before, it stood behind all-to-all of its communicator"
