"""Knobs whose effect random spellings rarely meet: for each a question whose answer it changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.cli import main

pytestmark = pytest.mark.once


def times_us(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    assert main(["simulate", *words, "--json"]) == 0
    return [row.get("time_us", row.get("step_us")) for row in json.loads(capsys.readouterr().out)["rows"]]


@pytest.mark.parametrize(
    ("size", "without", "with_it"),
    [
        ("1K", "mpich2", "mpich2:paper=true"),
        ("1M", "mpich2", "mpich2:builtin=false"),
        ("1K", "mpich2:algorithm=recursive_multiplying", "mpich2:algorithm=recursive_multiplying:radix=4"),
    ],
)
def test_of_a_library(size: str, without: str, with_it: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("all-reduce", "--fabric", "switch:16", "-b", size, "-e", size, "--algorithm", f"{without},{with_it}")
    assert len(set(times_us(capsys, *words))) == 2


def test_of_a_fabric(capsys: pytest.CaptureFixture[str]) -> None:
    """With one spine a group's leaves share the way out that four had."""
    words = ("all-to-all", "-b", "4M", "-e", "4M", "--algorithm", "pairwise", "--fabric")
    inside, narrow = (times_us(capsys, *words, f"dragonfly-plus:1x4x4{spines}")[0] for spines in ("", ",spines=1"))
    assert narrow > inside


@pytest.mark.parametrize(
    ("without", "with_it"),
    [
        (
            "poseidon:batch=1000",
            "poseidon:batch=1000:servers=1",
        ),  # one server's dense traffic is what factors cost less than
        ("poseidon:dense=push-pull", "poseidon:dense=push-pull:pair_mb=0.5"),
    ],
)
def test_of_a_policy(without: str, with_it: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "vgg16", "--gpus", "8", "--fabric", "switch:8,rate=10Gb/s", "--policy", f"{without},{with_it}")
    assert len(set(times_us(capsys, *words))) == 2
