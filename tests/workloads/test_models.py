"""Model workloads: what real ranks and the fake group issue equals what the closed formulas say, and the numbers agree.

A few of each parallel form run each time. In campaigns, of the grid of all legal grid points each test takes an eighth over 2 ranks and
another over 4, in float32 and in bfloat16: all of them take many minutes on two cores.
``RINGWRIGHT_ALL_CELLS=1 scripts/test --campaigns tests/workloads/test_models.py`` takes them all.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from forked_ranks import Forks
from patience import HANG_S
from ringwright.ground.errors import UsageError
from ringwright.workloads.expected.data import buckets
from ringwright.workloads.expected.front import expected
from ringwright.workloads.expected.legal import FORMS, MODES, forms, modes
from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import FAMILIES, IMAGES, card, sizes
from ringwright_lab.models.spec import read_spec
from ringwright_lab.sweep.work import SweepWork, issued

TESTS = Path(__file__).resolve().parents[1]
NO_TORCH = importlib.util.find_spec("torch") is None
NO_MODELS = importlib.util.find_spec("transformers") is None
ranks = [
    pytest.mark.torch,
    pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no real ranks"),
    pytest.mark.skipif(NO_MODELS, reason="the transformers library is absent: no real models"),
]
ROLE = {"ddp": "dp", "fsdp": "dp", "tp": "tp", "ep": "ep", "pp": "pp"}
TWO = {"tp+fsdp": {"dp": 2, "tp": 2}}


@dataclass(frozen=True)
class Ran:
    """What one rank issued, in order, and what it found; None where it did not come to its end."""

    calls: list[list[Any]]
    found: dict[str, list[Any]]


def forked(command: list[str], environment: dict[str, str], folder: Path) -> tuple[int, str]:
    """Run a module where PyTorch is loaded; return how it ended, and its words of what went wrong."""
    with (folder / "said").open("wb") as said, (folder / "errors").open("wb") as errors:
        code = Forks.Popen(command, env=environment, stdout=said, stderr=errors, start_new_session=True).wait(HANG_S)
    return code, (folder / "errors").read_text()


def run(folder: Path, points: list[dict[str, Any]], worlds: list[int]) -> list[list[Ran]]:
    """Run the grid points one after the other in one start of the libraries; fail with the first rank's error."""
    given = [{**point, "world": world} for point, world in zip(points, worlds, strict=True)]
    (folder / "cells.json").write_text(json.dumps(given))
    path = os.pathsep.join([str(TESTS.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    code, said = forked([sys.executable, "-m", "model_ranks", str(folder)], environment, folder)
    assert code == 0, said[-2000:]
    outcomes = []
    for number, world in enumerate(worlds):
        where = folder / str(number)
        errors = [path.read_text()[-1500:] for path in sorted(where.glob("error_*"))]
        assert not errors, f"{given[number]}\n{errors[0]}"
        read_spec = [(where / f"calls_{rank}.json", where / f"rank_{rank}.json") for rank in range(world)]
        assert all(call.exists() for call, _ in read_spec), f"{given[number]} did not come to its end"
        outcomes.append([Ran(json.loads(call.read_text()), json.loads(found.read_text())) for call, found in read_spec])
    return outcomes


def seen(calls: list[list[Any]], turn: int) -> Counter[tuple[Any, ...]]:
    """Count the equal calls of a turn."""
    return Counter(tuple(call[1:]) for call in calls if call[0] == turn)


def said(rows: list[ExpectedRow], mode: str, turn: int) -> Counter[tuple[Any, ...]]:
    """Count the same in the expected rows."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in issued(rows, mode, turn):
        found[row.phase, row.role, row.op, row.size_bytes, row.sent_bytes] += row.count
    return found


def free(point: SweepWork, call: tuple[Any, ...]) -> bool:
    """Return whether the routing decides the size of a call: tokens without a fixed capacity."""
    counts = 8 * point.card.dims.get("experts", 0)
    return (
        point.parallel["form"] == "ep"
        and "capacity" not in point.parallel
        and call[2] == "all-to-all"
        and call[3] != counts
    )


def check_real(point: SweepWork, ran: list[Ran]) -> None:
    """Every rank issues what was said, to the byte; where the routing decides, the sum over ranks does."""
    turns = range(-1, point.steps + (point.mode == "inference"))
    for turn in turns:
        sent = wanted = 0
        for rank, one in enumerate(ran):
            here, there = seen(one.calls, turn), said(point.rows(rank), point.mode, turn)
            loose = [Counter({key: count for key, count in each.items() if free(point, key)}) for each in (here, there)]
            assert here - loose[0] == there - loose[1], (point.card.family, point.parallel, point.mode, rank, turn)
            assert loose[0].total() == loose[1].total()
            sent += sum(key[4] * count for key, count in loose[0].items())
            wanted += sum(key[4] * count for key, count in loose[1].items())
        assert sent == wanted, (point.card.family, point.parallel, point.mode, turn)


def check_fake(point: SweepWork, rank: int, ran: list[Ran]) -> None:
    """One rank of the fake group issues the same."""
    for turn in range(-1, point.steps + (point.mode == "inference")):
        assert seen(ran[0].calls, turn) == said(point.rows(rank), point.mode, turn), (
            point.card.family,
            point.parallel,
            turn,
        )


def make(family: str, form: str, mode: str, size: int, **more: Any) -> SweepWork:
    """Return a small grid point of a form over ``size`` ranks."""
    shape = TWO.get(form) or {ROLE[form]: size}
    if form == "pp":
        return SweepWork(card(family, layers=4), {"form": form, **shape}, mode, batch=4, micro_batches=4, **more)
    return SweepWork(card(family), {"form": form, **shape}, mode, **more)


def grid(size: int) -> Iterator[SweepWork]:
    """Yield every legal grid point over ``size`` ranks."""
    for family in FAMILIES:
        for mode in modes(family):
            for form in forms(family, mode):
                if form != "none" and (form not in TWO or size == 4):
                    yield make(family, form, mode, size)


def some(points: Iterable[SweepWork], which: int) -> list[SweepWork]:
    """Return every eighth grid point, from the first or from the fifth on; all where all are asked for."""
    return list(points) if os.environ.get("RINGWRIGHT_ALL_CELLS") else list(points)[4 * (which % 2) :: 8]


FEW = [
    make("llama", "ddp", "training", 2),
    make("llama", "ddp", "training", 2, bucket_cap_mb=0.25),
    make("resnet", "ddp", "training", 2, bucket_cap_mb=0.25),
    make("gpt2", "ddp", "lora", 2),
    make("bert", "fsdp", "head", 2),
    make("vgg", "fsdp", "training", 2),
    make("llama", "fsdp", "inference", 2),
    make("mixtral", "tp", "training", 2),
    make("deepseek-v3", "tp", "inference", 2),
    make("mixtral", "ep", "training", 2),
    make("llama", "pp", "training", 2),
]


# ---------------------------------------------------------------------------------------------------------- the cards
@pytest.mark.parametrize(
    ("family", "size", "parameters"),
    [
        ("gpt2", "gpt2-small", 124_439_808),
        ("gpt2", "gpt2-xl", 1_557_611_200),
        ("llama", "llama3-8b", 8_030_261_248),
        ("llama", "llama3-70b", 70_553_706_496),
        ("llama", "llama3-405b", 405_853_388_800),
        ("mixtral", "mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", "deepseek-v3", 671_026_404_352),
        ("resnet", "resnet-18", 11_689_512),
        ("vgg", "vgg-11", 132_863_336),
    ],
)
def test_the_sizes_have_their_published_parameters(family: str, size: str, parameters: int) -> None:
    assert card(family, size).anatomy().elements == parameters


def test_a_name_that_does_not_exist_is_told_what_does() -> None:
    with pytest.raises(UsageError) as caught:
        card("llama", "llama3-9b")
    assert "llama3-8b" in caught.value.remedy
    with pytest.raises(UsageError, match="no dimension 'depth'"):
        card("llama", depth=3)
    with pytest.raises(UsageError, match="not a model family"):
        sizes("alexnet")


# ------------------------------------------------------------------------------------------------------- the formulas
def test_deepseek_v3_serves_with_181_sums_and_one_gather() -> None:
    point = card("deepseek-v3", "deepseek-v3")
    rows = expected(point, {"form": "tp", "tp": 16}, "inference", batch=1, sequence=1024, dtype="bfloat16")
    assert rows == [
        ExpectedRow("prefill", "prefill", "tp", "all-reduce", 14_680_064, 14_680_064, 181),
        ExpectedRow("prefill", "prefill", "tp", "all-gather", 258_560, 16_160, 1),
        ExpectedRow("decode", "decode", "tp", "all-reduce", 14_336, 14_336, 181),
        ExpectedRow("decode", "decode", "tp", "all-gather", 258_560, 16_160, 1),
    ]
    assert (
        sum(row.size_bytes * row.count for row in rows if row.when == "decode" and row.op == "all-reduce") == 2_594_816
    )


def test_buckets_close_when_they_are_full_and_never_mix_types() -> None:
    assert buckets([(4, 1), (4, 2), (4, 3), (4, 4)], [8, 12]) == [12, 12, 16]
    assert buckets([(4, 1), (8, 1), (4, 1)], [100]) == [8, 8]
    assert buckets([(4, 100)], [8]) == [400]


@pytest.mark.parametrize("family", FAMILIES)
def test_data_parallel_steps_move_every_gradient_once(family: str) -> None:
    for size in sizes(family):
        made = card(family, size)
        rows = expected(made, {"form": "ddp", "dp": 8}, batch=1, sequence=8)
        for when in ("first", "later"):
            total = sum(row.size_bytes * row.count for row in rows if row.when == when and row.op == "all-reduce")
            assert total == 4 * made.anatomy().elements


def test_an_illegal_pair_names_the_legal_ones() -> None:
    with pytest.raises(UsageError, match="does not go with 'tp'") as caught:
        expected(card("gpt2"), {"form": "tp", "tp": 2}, batch=1, sequence=8)
    assert caught.value.remedy == "one of: none, ddp, fsdp"
    with pytest.raises(UsageError, match="has no mode 'inference'"):
        expected(card("vgg"), {"form": "ddp", "dp": 2}, "inference", batch=1, sequence=8)


@pytest.mark.parametrize(
    ("family", "parallel", "what"),
    [
        ("llama", {"form": "tp", "tp": 3}, "cannot share"),
        ("mixtral", {"form": "ep", "ep": 3}, "cannot share"),
        ("llama", {"form": "pp", "pp": 4}, "do not fill"),
    ],
)
def test_dimensions_that_do_not_come_out_even_are_refused(
    family: str, parallel: dict[str, int | str], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        expected(card(family), parallel, batch=4, sequence=8)
    with pytest.raises(UsageError, match=what):
        SweepWork(card(family), parallel).job()


def test_every_form_is_legal_somewhere() -> None:
    assert {form for family in FAMILIES for mode in modes(family) for form in forms(family, mode)} == set(FORMS)


def test_the_rank_program_takes_what_is_legal_and_refuses_modes_that_are_not() -> None:
    for family in FAMILIES:
        for mode in MODES:
            for form in FORMS:
                given = {"model": family, "dims": {}, "parallel": {"form": form}, "mode": mode}
                if mode in modes(family) and form in forms(family, mode):
                    assert read_spec(given).form == form
                elif mode not in modes(family) or (form, mode) == ("ddp", "inference"):
                    with pytest.raises(UsageError):
                        read_spec(given)
    with pytest.raises(UsageError, match="needs 'dims'"):
        read_spec({"model": "llama", "parallel": {}})


# ---------------------------------------------------------------------------------------------------------- real ranks
@pytest.mark.torch
@pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no real ranks")
def test_the_program_prints_its_answer_and_its_errors(tmp_path: Path) -> None:
    point = SweepWork(card("vgg"), {"form": "none"}, steps=2)
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent / "src")}
    done = subprocess.run(
        [sys.executable, *point.command(out=str(tmp_path))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["times_s"]) == 2
    assert json.loads((tmp_path / "rank_0.json").read_text())["losses"][-1] == answer["loss"]
    wrong = json.dumps({**point.job(), "colour": "red"})
    command = [sys.executable, "-m", "ringwright_lab.models.job", wrong]
    code, words = forked(command, environment, tmp_path)
    assert code == 2
    assert "no key 'colour'" in words
    assert "Traceback" not in words


ONE_RANK = [
    *(
        make(family, form, "training", 2, steps=4)
        for family, form in (("vgg", "ddp"), ("llama", "fsdp"), ("llama", "tp"))
    ),
    make("mixtral", "ep", "training", 2, steps=4),
]
SERVED = [make("deepseek-v3", "tp", "inference", size, steps=4) for size in (2, 4)]
FULL = SweepWork(
    card("deepseek-v3", "deepseek-v3"),
    {"form": "tp", "tp": 16},
    "inference",
    batch=1,
    sequence=1024,
    steps=1,
    dtype="bfloat16",
)
FAKE = [
    make("vgg", "ddp", "training", 8),
    make("llama", "fsdp", "training", 64),
    make("mixtral", "tp", "training", 4),
    make("mixtral", "ep", "inference", 4),
    make("llama", "pp", "training", 4),
    replace(FULL, card=card("deepseek-v3", "deepseek-v3", layers=4)),
]
# Rows that do not come out even over three ranks are padded; what stages and shares of a model answer is what one rank does.
UNEVEN = some([make(family, "fsdp", mode, 3) for family in FAMILIES for mode in modes(family)], 1)
ANSWERED = [make(family, form, "inference", 2) for family in ("llama", "mixtral") for form in ("tp", "pp")]


def fixed(point: SweepWork) -> SweepWork:
    """Return a grid point whose sizes do not depend on the routing, as the fake group wants it."""
    limited = point.parallel["form"] == "ep" and "capacity" not in point.parallel
    return replace(point, parallel={**point.parallel, "capacity": 16}) if limited else point


def pairs(points: list[SweepWork]) -> list[tuple[dict[str, Any], int]]:
    """Return each grid point on one rank and on its own ranks."""
    return [each for point in points for each in ((point.alone().job(), 1), (point.job(), point.world))]


def check_losses(point: SweepWork, alone: list[Ran], spread: list[Ran]) -> None:
    """The mean loss over the ranks that know one is that of one rank with all the data, also after the weights changed."""
    steps = zip(*(one.found["losses"] for one in spread), strict=True)
    known = [[loss for loss in step if loss is not None] for step in steps]  # of stages only the last one knows
    means = [sum(step) / len(step) for step in known]
    assert means == pytest.approx(alone[0].found["losses"], abs=3e-6), (point.card.family, point.parallel, point.mode)


def check_answers(alone: list[Ran], spread: list[Ran]) -> None:
    """The logits are those of one rank."""
    for mine, theirs in zip(spread[-1].found["logits"], alone[0].found["logits"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Ran]]:
    """Everything that the fast tests look at, from one start of the libraries, in the order of the lists above."""
    given = [(point.job(), point.world) for point in FEW] + pairs(ONE_RANK) + [(SERVED[0].alone().job(), 1)]
    given += [(point.job(), point.world) for point in SERVED] + [(fixed(point).job(fake_rank=1), 1) for point in FAKE]
    given += [(point.job(), point.world) for point in UNEVEN] + pairs(ANSWERED)
    return iter(run(tmp_path_factory.mktemp("models"), [point for point, _ in given], [world for _, world in given]))


class TestFew:
    pytestmark = ranks

    def test_all(self, outcomes: Iterator[list[Ran]]) -> None:
        """In the order of the runs: what is issued, losses, answers, the fake group."""
        for point in FEW:
            check_real(point, next(outcomes))
        for point in ONE_RANK:
            check_losses(point, next(outcomes), next(outcomes))
        alone = next(outcomes)
        for point in SERVED:
            ran = next(outcomes)
            check_real(point, ran)
            check_answers(alone, ran)
        for point in FAKE:
            ran = next(outcomes)
            check_fake(fixed(point), 1, ran)
        for point in UNEVEN:
            check_real(point, next(outcomes))
        for _ in ANSWERED:
            check_answers(next(outcomes), next(outcomes))


@pytest.mark.sampled(0, "*")  # TestFew holds the same on a few grid points of each form, one of full width among them
@pytest.mark.slow
class TestGrid:
    pytestmark = ranks

    def test_every_legal_grid_point_issues_what_was_said_with_the_losses_of_one_rank(self, tmp_path: Path) -> None:
        # A batch norm sees the images of its own rank only, so ResNet's losses differ.
        points = [point for size in (2, 4) for point in some(grid(size), size // 2)]
        assert len(points) > 15
        learns = [point.mode != "inference" and point.card.family != "resnet" for point in points]
        points = [replace(point, steps=4) if each else point for point, each in zip(points, learns, strict=True)]
        given: list[tuple[dict[str, Any], int]] = []
        for point, each in zip(points, learns, strict=True):
            given += pairs([point]) if each else [(point.job(), point.world)]
        ran = iter(run(tmp_path, [point for point, _ in given], [world for _, world in given]))
        for point, each in zip(points, learns, strict=True):
            alone = next(ran) if each else None
            spread = next(ran)
            check_real(point, spread)
            if alone is not None:
                check_losses(point, alone, spread)

    def test_every_legal_grid_point_issues_what_was_said_on_the_fake_group(self, tmp_path: Path) -> None:
        points = [
            fixed(replace(point, dtype=dtype))
            for at, dtype in enumerate(("bfloat16", "float32"))
            for point in some(grid(4), at)
        ]
        ran = run(tmp_path, [point.job(fake_rank=3) for point in points], [1] * len(points))
        for point, one in zip(points, ran, strict=True):
            check_fake(point, 3, one)

    def test_full_size_models_issue_what_was_said(self, tmp_path: Path) -> None:
        short = {"batch": 1, "sequence": 64, "steps": 2, "dtype": "bfloat16"}
        points = [
            SweepWork(
                card("llama", "llama3-70b"), {"form": "tp+fsdp", "tp": 8, "dp": 128}, **{**short, "sequence": 4096}
            ),
            SweepWork(card("mixtral", "mixtral-8x7b"), {"form": "ep", "ep": 8, "capacity": 32}, **short),
            SweepWork(card("bert", "bert-large"), {"form": "tp", "tp": 8}, **short),
            SweepWork(card("resnet", "resnet-18"), {"form": "ddp", "dp": 256}, **short),
            SweepWork(card("vgg", "vgg-11"), {"form": "ddp", "dp": 256}, **short),
            SweepWork(card("gpt2", "gpt2-xl"), {"form": "fsdp", "dp": 1024}, **short),
            SweepWork(card("deepseek-v3", "deepseek-v3"), {"form": "ep", "ep": 64, "capacity": 8}, **short),
        ][: None if os.environ.get("RINGWRIGHT_ALL_CELLS") else 2]
        points.append(FULL)
        ran = run(tmp_path, [point.job(fake_rank=1) for point in points], [1] * len(points))
        for point, one in zip(points, ran, strict=True):
            check_fake(point, 1, one)
        assert Counter(tuple(call[2:]) for call in ran[-1][0].calls if call[0] == 1) == {
            ("tp", "all-reduce", 14_336, 14_336): 181,
            ("tp", "all-gather", 258_560, 16_160): 1,
        }


def test_images_and_tokens_are_told_apart() -> None:
    assert all("image" in card(family).dims for family in IMAGES)
    assert all("vocabulary" in card(family).dims for family in FAMILIES if family not in IMAGES)
