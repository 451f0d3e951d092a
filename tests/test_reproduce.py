"""Claims of papers: what is inside its band stays inside, what is outside is said to be outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringwright.cli import main
from ringwright.errors import EXIT_GATE, EXIT_INPUT, EXIT_USAGE, InputError
from ringwright.studies import registry, reproduce
from ringwright.studies.figures.fit import crossing, least, turns
from ringwright.studies.figures.rows import holds

pytestmark = pytest.mark.once

# Rows that fail, each with a note that says why.
FAILING: dict[str, set[str]] = {
    "blueconnect": {"24 nodes of 8 GPUs: faster than a ring in random order, 100 MB (times)"},
    "lina": {
        "Fig. 8, the all-reduce ends earlier with micro-ops than deferred (ms)",
        "naive >= fair >= deferred >= micro-ops, and deferral ends the all-reduce later: 30 MiB (1: yes)",
        "best partition of 5 to 200 MiB, one card a node (MiB)",
        "all-to-all, two experts on a device, 16 experts (times shorter)",
        "step, priority and partitions without packing, 16 experts (times shorter)",
        "step, with packing by the rule and pipelining, 16 experts (times shorter)",
        "inference without the second phase, batches of 1000 that are slower than the baseline",
    },
    "bytescheduler": {"Sweep of partition over all credits: falls after a rise"},
    "pytorch-ddp": {
        "Fig. 8, ResNet-50 NCCL, 32 GPUs, 50 MB against each gradient alone",
        "Fig. 7, ResNet-50 Gloo, 16 GPUs, best bucket (MB)",
        "Fig. 8, ResNet-50 Gloo, 32 GPUs, best bucket (MB)",
    },
    "gradientflow": {
        "Start-up of 20 us: a threshold between the extremes is no worse than both (% shorter)",
        "Start-up of 100 us: a threshold between the extremes is no worse than both (% shorter)",
    },
    "pace": {"ResNet-50, 0.3 ms, 25 Gb/s: gain of merging over gain of order"},
}  # fmt: skip
LONG = {"gradientflow", "lina", "p3", "pace", "pytorch-ddp", "tictac"}
PAPERS = sorted(path.stem for path in reproduce.find([]))  # without experiments, which take long


@pytest.mark.parametrize("slug", [pytest.param(slug, marks=[pytest.mark.slow] * (slug in LONG)) for slug in PAPERS])
def test_paper(slug: str) -> None:
    (paper,) = reproduce.reproduce(reproduce.find([slug]))["papers"]
    assert paper["slug"] == slug
    outside = {row["figure"] for row in paper["rows"] if not row["pass"]}
    assert outside == FAILING.get(slug, set())
    assert all(row["note"] for row in paper["rows"] if not row["pass"])
    assert {row["figure"] for row in paper["rows"] if "NOT reached" in row["note"]} <= outside
    assert paper["inside"] == (not outside)
    assert len({row["figure"] for row in paper["rows"]}) == len(paper["rows"])


def test_every_scheduler_has_its_figures() -> None:
    assert {system.slug for system in registry.schedulers()} <= set(PAPERS)


@pytest.mark.parametrize(
    ("got", "claimed", "tolerance", "inside"),
    [
        (26.0, 26, "exact", True), (26.001, 26, "exact", False), (1.139, 1, 0.14, True), (1.141, 1, 0.14, False),
        (0.861, 1, 0.14, True), (0.859, 1, 0.14, False), (1.0, "some", [1, 2], True), (2.1, "some", [1, 2], False),
        (float("nan"), "some", [1, 2], False), (float("nan"), 1, 0.5, False), (0, 0, "exact", True), (1, 0, "exact", False),
    ],
)  # fmt: skip
def test_a_row_passes_inside_its_tolerance_alone(got: float, claimed: object, tolerance: object, inside: bool) -> None:
    assert holds(got, claimed, tolerance) is inside


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("figure = 'x'\nclaimed = 1\ntolerance = 'exact'\nkind = 'form'", "no 'measure'"),
        ("figure = 'x'\nmeasure = 'peak'\nclaimed = 1\ntolerance = 'exact'", "no 'kind'"),
        ("figure = 'x'\nmeasure = 'peak'\nclaimed = 1\ntolerance = 'exact'\nkind = 'proof'", "kind 'proof' is none of"),
        (
            "figure = 'x'\nmeasure = 'nothing'\nclaimed = 1\ntolerance = 'exact'\nkind = 'form'",
            "nothing measures 'nothing'",
        ),
        ("figure = 'x'\nmeasure = 'peak'\nclaimed = 'more'\ntolerance = 0.1\nkind = 'form'", "needs a claimed number"),
    ],
)
def test_a_row_that_cannot_be_run_is_named(row: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(f"slug = 'p3'\nfigure = 'f'\nsource = 's'\n[setup]\nstudy = 'figures'\n[[rows]]\n{row}\n")
    with pytest.raises(InputError, match=said):
        reproduce.reproduce([path])


def test_curves_are_judged_by_their_turns() -> None:
    assert turns([5, 3, 1, 2, 4], 0.01) == 0
    assert turns([5, 3, 4, 2, 4], 0.01) == 1
    assert turns([5, 3, 3.02, 3, 4], 0.01) == 0, "a ripple"
    assert turns([1, 2, 1, 2, 1], 0.01) == 2
    assert least(lambda x: abs(x - 3.3), 1, 9) == pytest.approx(3.3, rel=1e-3)
    assert crossing(lambda x: x * x, 2, 0, 5) == pytest.approx(2**0.5, rel=2e-3)
    assert crossing(lambda x: -(x**3), -2, 0, 5) == pytest.approx(2 ** (1 / 3), rel=2e-3)
    assert crossing(lambda x: x, 9, 0, 5) != crossing(lambda x: x, 9, 0, 5), "nan: it does not pass there"


def test_every_published_system_has_its_paper() -> None:
    published = {system.slug for system in registry.systems() if system.kind == "published"}
    assert published <= set(PAPERS)


def test_the_record_is_what_the_list_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systems", "--family", "published", "--json"]) == 0
    shown = {row["slug"]: row["reproduced"] for row in json.loads(capsys.readouterr().out)["systems"]}
    assert shown["blueconnect"] == "prediction 0 of 1"
    assert "form 2 of 2" in shown["accl"]


def test_the_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "accl"]) == 0
    said = capsys.readouterr().out
    assert "form 2 of 2" in said
    assert "form: sign, order or shape only" in said
    assert main(["reproduce", "blueconnect"]) == EXIT_GATE
    assert main(["reproduce", "nothing"]) == EXIT_USAGE
    broken = tmp_path / "broken.toml"
    broken.write_text("slug = 'x'\n[setup]\n[expected]\n")
    assert main(["reproduce", str(broken)]) == EXIT_INPUT
    assert "'figure'" in capsys.readouterr().err
