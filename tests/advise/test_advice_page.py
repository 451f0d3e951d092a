"""The page of advice: the answer first, each change with its interval and one step before and after, every string escaped."""

from __future__ import annotations

import html as escaping
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from advice_made import made_advice
from ringwright.advise import advise as advising
from ringwright.advise.advise import AdviceSpec, Advised, advised
from ringwright.advise.document import Advice
from ringwright.advise.interval import FEWEST_DRAWS, Draws
from ringwright.advise.pictures import DrawnStep, drawn_steps
from ringwright.advise.settings import Setup
from ringwright.advise.situation import of_model, of_recording
from ringwright.advise.space import asked_layers
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.formats.sources import read
from ringwright.formats.sources.sample import sample
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.reports.pages.advised_page import advice_page
from ringwright.reports.steps.advised import write, write_files
from ringwright_lab.testing import slow_ranks
from ringwright_lab.testing.noise import ours

pytestmark = pytest.mark.once
COMMAND = "ringwright advise --model gpt3-125m"


@pytest.fixture(scope="module", autouse=True)
def _few_draws() -> Iterator[None]:
    """As many as advice takes at the least: a page shows them alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advising, "Draws", partial(Draws, most=FEWEST_DRAWS))
        yield


@pytest.fixture(scope="module")
def told() -> Advised:
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 4, "dp4", 1))
    situation = of_model(spec, fabric("switch:4,rate=400Gb/s"), "pytorch-ddp:bucket_cap_mb=800")
    return advised(situation, AdviceSpec(asked_layers("ddp,fsdp"), seconds=600.0))


@pytest.fixture(scope="module")
def steps(told: Advised) -> list[DrawnStep]:
    return drawn_steps(told)


def test_the_answer_comes_first_and_each_change_has_two_pictures(told: Advised, steps: list[DrawnStep]) -> None:
    document = told.document
    text = advice_page(document, steps, COMMAND)
    assert document["verdict"] == "changes"
    answer = text.index(f"Change: {document['why']}")
    assert answer < text.index('id="change-1"') < text.index('id="refused"') < text.index('id="ground"')
    assert text.count('class="plot timeline"') == 2 * len(document["changes"])
    assert [each.change for each in steps] == list(range(len(document["changes"]) + 1))
    for each in document["changes"]:
        assert text.count(escaping.escape(each["measure"])) == 1
        assert f"{each['gain_p50']:.1%}, {each['gain_p05']:.1%} to {each['gain_p95']:.1%}" in text
    assert COMMAND in text


def test_the_step_with_a_change_is_shorter_in_the_same_scale(told: Advised, steps: list[DrawnStep]) -> None:
    before, after = steps[:2]
    assert after.step_s < before.step_s
    assert before.step_s == told.evaluator.run(Setup()).step_s
    ends = [
        max(
            float(x) + float(width)
            for x, width in re.findall(r'<rect class="b\d+" x="([\d.]+)" y="\d+" width="([\d.]+)"', figure)
        )
        for figure in advice_page(told.document, steps, COMMAND).split("<figure")[1:3]
    ]
    assert (ends[1] - 150) / (ends[0] - 150) == pytest.approx(after.step_s / before.step_s, rel=0.05)


def test_bars_lie_on_one_scale(told: Advised, steps: list[DrawnStep]) -> None:
    change = told.document["changes"][0]
    worse = {**change, "what": "second", "gain_p05": -change["gain_p95"], "gain_p50": change["gain_p50"]}
    text = advice_page({**told.document, "changes": [change, worse]}, steps, COMMAND)  # type: ignore[typeddict-item]
    lefts = [float(each) for each in re.findall(r'<i style="left:([\d.]+)%;width', text)]
    nothing = {float(each) for each in re.findall(r'<u style="left:([\d.]+)%"', text)}
    assert lefts[1] == 0 < lefts[0]
    assert len(nothing) == 1
    assert lefts[0] > min(nothing) > 0, "what gains nothing lies left of what gains something"


def test_names_from_elsewhere_are_text(told: Advised, steps: list[DrawnStep]) -> None:
    bad = "<img src=x onerror=alert(1)>"
    changes = [{**each, "what": bad, "where": bad, "measure": bad} for each in told.document["changes"]]
    hostile: Advice = {
        **told.document,  # type: ignore[typeddict-item]
        "job": bad,
        "why": bad,
        "changes": changes,
        "refused": [{"what": bad, "why": bad, "remedy": bad}],
        "assumptions": [bad],
    }
    text = advice_page(hostile, [replace(each, title=bad) for each in steps], bad)
    assert bad not in text
    assert escaping.escape(bad) in text


def test_without_times_there_is_a_page_without_pictures() -> None:
    made = advised(of_recording(read([str(sample())]), None), AdviceSpec(asked_layers(None)))
    assert drawn_steps(made) == []
    text = advice_page(made.document, [], COMMAND)
    assert "Cannot tell" in text
    assert "<figure" not in text
    assert "ringwright run -- COMMAND" in text


def test_a_mended_rank_is_drawn_in_a_step_in_which_it_was_slow() -> None:
    recording, injected = slow_ranks.job("straggler", 3, ours())
    made = advised(of_recording(recording, None), AdviceSpec(asked_layers("repair"), seconds=600.0))
    before, after = drawn_steps(made)
    assert after.step_s < 0.9 * before.step_s
    step = int(re.findall(r"step (\d+)", before.title)[0])
    assert step >= (injected.begin or 0)
    assert {track.rank for track in before.timeline.tracks} & set(injected.ranks), "the slow rank is among those drawn"
    assert len({track.rank for track in before.timeline.tracks}) == 3


def test_what_is_declined_in_the_drawn_step_has_no_picture(told: Advised) -> None:
    first = told.changes[0]
    wrong = replace(first, after=Setup.of([replace(first.settings[0], spelling="gradientflow")]))
    assert [each.change for each in drawn_steps(replace(told, changes=[wrong]))] == [0]


def test_a_page_and_a_folder_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["advise", "--sample", "-o"]
    assert main([*words, str(tmp_path / "a.html")]) == 0
    assert "wrote" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "a.html")]) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "a")]) == 0
    assert {each.name for each in (tmp_path / "a").iterdir()} == {"advice.json", "advice.html"}
    assert main([*words, str(tmp_path / "a")]) == 2
    assert main([*words, str(tmp_path / "a"), "--force"]) == 0
    assert main([*words, str(tmp_path / "none" / "a.html")]) == 2


@pytest.mark.parametrize("width", [40, 200])
def test_a_terminal_has_every_line_within_its_width(width: int, tmp_path: Path) -> None:
    out = io.StringIO()
    write(made_advice(), out, width=width)
    write_files(tmp_path / "advice", ("advice.json", "1-buckets.py"), out, width=width)
    assert all(len(line) <= width for line in out.getvalue().splitlines())
    words = " ".join(out.getvalue().split())
    assert words.count("export: ringwright export") == 4, "each command on a line of its own"
    assert "read back" in words
