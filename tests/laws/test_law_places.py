"""A fault put into a simulated job is named by the summary of its recording, by the narrowest place that the columns identify."""

from __future__ import annotations

from functools import cache

import pytest

from ringwright.analysis.summary import summarise
from ringwright_lab.testing.place_verdicts import PlantedVerdict, judged, table
from ringwright_lab.testing.planted_places import disguised, planted

pytestmark = pytest.mark.once
KINDS = ("healthy", "slow-rank", "late-loader", "slow-nic", "loss", "half-optic", "slow-uplink", "latency")
SEEDS = range(2)  # of small jobs of each kind; scripts/planted-places draws as many others as are asked for


@cache
def found() -> tuple[PlantedVerdict, ...]:
    drawn = [(10 * at + seed, kind) for seed in SEEDS for at, kind in enumerate(KINDS)]
    return tuple(each for seed, kind in drawn if (each := judged(seed, kind, small=True)) is not None)


def test_the_place_of_a_fault_is_named_and_no_other() -> None:
    told = table(found())
    missed = [each.said for each in found() if each.outcome not in ("named", "quiet")]
    assert told["precision"] == 1.0, missed
    assert told["recall"] >= 0.95, missed
    assert sum(each.counts for each in found()) >= 8


def test_a_healthy_job_accuses_nobody() -> None:
    healthy = [each for each in found() if each.kind == "healthy"]
    assert len(healthy) >= 2
    assert {each.outcome for each in healthy} == {"quiet"}


def test_nothing_of_the_fault_is_left_in_what_is_judged() -> None:
    job = planted(3, "late-loader", small=True)
    assert job is not None
    hidden, now = disguised(job.trace, job.seed)
    assert set(hidden.meta) <= {"source", "world", "summary", "format", "schema_version"}
    assert hidden.table("claims").is_empty()
    assert not hidden.df["task"].str.contains("held").any()
    assert sorted(now) == sorted(now.values()) != list(now.values())
    assert summarise(hidden)["answer"]["ranks"] == [now[rank] for rank in sorted(job.ranks)]


def test_the_table_counts_what_is_wrong_and_what_is_missed() -> None:
    outcomes = ["named"] * 8 + ["silent", "narrow", "quiet"]
    told = table(PlantedVerdict(at, "slow-nic", each, each != "quiet", "", "") for at, each in enumerate(outcomes))
    assert told["precision"] == pytest.approx(8 / 9)
    assert told["recall"] == pytest.approx(8 / 10)
