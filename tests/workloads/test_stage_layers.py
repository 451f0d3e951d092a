"""Layers over pipeline stages: even, balanced, as published, by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringwright
from ringwright.ground.errors import UsageError
from ringwright.workloads.flops import block_flops
from ringwright.workloads.models import model
from ringwright.workloads.parallel import parse
from ringwright.workloads.stage_layers import _balanced, chunks, listed, sizes


@pytest.mark.parametrize(
    ("name", "form", "stages"),
    [
        ("llama3-8b", "tp8,pp3", [11, 12, 9]),  # 32 layers; the loss is 2.3 of them
        ("llama3-8b", "pp4", [8, 8, 8, 8]),
        ("llama3-405b", "tp8,pp16", [7, *[8] * 14, 7]),  # as published
        ("llama3-405b", "tp8,pp9", [14] * 9),
        ("gpt3-175b", "tp8,pp7", [13, 14, 14, 14, 14, 14, 13]),
    ],
)
def test_layers_of_each_stage(name: str, form: str, stages: list[int]) -> None:
    assert sizes(model(name), parse(form))[0] == stages
    assert [sum(map(len, stage)) for stage in chunks(model(name), parse(form))] == stages


def test_chunks_of_virtual_stages_are_balanced_along_the_model() -> None:
    spans = chunks(model("llama3-8b"), parse("pp3,vp3"))
    along = [spans[stage][chunk] for chunk in range(3) for stage in range(3)]
    assert list(itertools.chain(*along)) == list(range(32))
    assert [len(each) for each in along] == [3, 4, 4, 4, 4, 4, 4, 4, 1]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_no_other_cut_has_a_smaller_largest_stage(costs: list[int], data: st.DataObject) -> None:
    number = data.draw(st.integers(1, len(costs)))
    counts = _balanced([float(each) for each in costs], number)

    def stages(cuts: tuple[int, ...]) -> list[int]:
        return [sum(costs[first:last]) for first, last in itertools.pairwise((0, *cuts, len(costs)))]

    every = [stages(cuts) for cuts in itertools.combinations(range(1, len(costs)), number - 1)]
    mine = stages(tuple(itertools.accumulate(counts[:-1])))
    assert min(counts) >= 1
    assert max(mine) == min(map(max, every))
    assert sum(counts) == len(costs)


def test_the_longest_stage_is_what_a_step_waits_for() -> None:
    """A pipeline whose stages are balanced by what they compute is about as fast as any, and faster than a lopsided one."""
    machine = ringwright.fabric("dgx-h100:3")
    jobs = {
        text: ringwright.job("llama3-8b", gpus=24, parallel="tp8,pp3", stages=text)
        for text in ("", "11,11,10", "8,8,16")
    }
    times = {text: ringwright.simulate(job, machine).step_s for text, job in jobs.items()}
    assert times[""] < 1.01 * times["11,11,10"]  # whose last stage has the head, and exchanges less
    assert times["11,11,10"] < times["8,8,16"]
    costs = block_flops(model("llama3-8b"))
    assert costs[1] == pytest.approx(costs[2])


def test_layers_by_hand() -> None:
    assert listed("7,14*8,7") == (7, *[8] * 14, 7)
    assert listed(" 11 12,9 ") == (11, 12, 9)
    by_hand = replace(parse("pp3"), stages=(10, 11, 11))
    assert [sum(map(len, stage)) for stage in chunks(model("llama3-8b"), by_hand)] == [10, 11, 11]


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ("11,11", "2 numbers of layers for pp3 x vp1"),
        ("11,11,11", "the stages hold 33 layers, llama3-8b has 32"),
        ("0,16,16", "a stage without layers is no stage"),
        ("11,x,11", "'x' is no number of layers"),
        ("99999999999*1,2,3", "is no number of layers"),
    ],
)
def test_layers_that_cannot_be(stages: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ringwright.job("llama3-8b", gpus=24, parallel="tp8,pp3", stages=stages)


def test_more_chunks_than_layers_are_refused() -> None:
    with pytest.raises(UsageError, match="a chunk would have none"):
        ringwright.job("llama3-8b", gpus=40, parallel="pp20,vp2,dp2")
