"""The law of like software: where less of it is charged to one side of a table, the table says so, and nobody wins by what was left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.search.question import SynthesisSpec
from ringwright.search.rivals import rival_us

TABLE = ("simulate", "all-reduce", "--fabric", "dgx-a100:1", "-b", "1K", "-e", "1G", "-f", "1024")
LENDERS = ("gc3", "sccl", "blink", "ring")  # programs that no library has


def answered(capsys: pytest.CaptureFixture[str], algorithms: str) -> dict[str, Any]:
    """Return the object of a table of algorithms."""
    assert main([*TABLE, "--algorithm", algorithms, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("name", LENDERS)
def test_no_program_wins_by_software_that_it_is_not_charged(capsys: pytest.CaptureFixture[str], name: str) -> None:
    told = answered(capsys, f"nccl-2-4,{name}")
    by_name = {(row["algorithm"], row["size_bytes"]): row for row in told["rows"]}
    assert {row["software"] for row in told["rows"]} == {"library", "messages"}
    (note,) = told["notes"]
    assert f"{name}: no software charged but what a message costs" in note
    most = {each["size_bytes"]: each["most_us"] for each in told["unlike"]}
    for size in (1 << 10, 1 << 20, 1 << 30):
        ours, theirs = by_name[name, size]["time_us"], by_name["nccl-2-4", size]["time_us"]
        starred = [each["algorithm"] for each in told["fastest"] if each["size_bytes"] == size]
        if theirs <= ours:
            assert starred == ["nccl-2-4"], "what is charged more and is faster all the same is the fastest"
        elif size in most:
            assert starred == []
            assert ours + most[size] >= theirs
        else:
            assert starred == [name]


def test_at_small_sizes_nobody_is_starred(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TABLE[:4], "-b", "1K", "-e", "1K", "--algorithm", "nccl-2-4,gc3"]) == 0
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if line.strip().startswith("1 KiB"))
    assert "*" not in line
    assert "nobody is starred there" in " ".join(text.split())


def test_one_kind_of_software_needs_no_word() -> None:
    for spellings in (["nccl-2-4", "nccl-2-4:algorithm=tree"], ["ring", "gc3"], ["nccl-2-4:tuning=false", "gc3"]):
        told = sweep(SimulationSpec("all-reduce", fabric("dgx-a100:1")), spellings, [1 << 10])
        assert (told["notes"], told["unlike"], len(told["fastest"])) == ([], [], 1)


def test_rivals_of_a_program_that_was_found_are_timed_as_it_is() -> None:
    on = fabric("dgx-a100:1")
    question = SynthesisSpec("all-gather", on)
    collective = question.collective(1 << 10)
    library, _ = rival_us(question, collective, "nccl-2-4")
    ring, _ = rival_us(question, collective, "ring")
    assert library is not None
    assert library == pytest.approx(ring, rel=0.5), "no start of a call, no work a message"
