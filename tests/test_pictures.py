"""Pictures in a notebook: whole pages that load nothing, in frames of their own; what a name says is never markup; refusals."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import polars as pl
import pytest

import ringwright
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.notebook import rows_shown, shown
from ringwright.model.trace import Trace
from ringwright.reports.notebook import Picture

pytestmark = pytest.mark.once
EVIL = '</iframe><script>alert(1)</script>" onload="alert(1)'


def timed(ranks: int = 4, calls: int = 8, name: str = "kineto") -> Trace:
    """Return a Trace whose calls and kernels have times on one clock."""
    rows = [
        {
            "kind": kind,
            "rank": rank,
            "start_s": number * 1e-3 + at,
            "duration_s": 2e-4,
            "clock": "one",
            "op": op,
            "kernel": kernel,
            "communicator": group,
            "sequence": number,
            "multiplicity": 1,
            "size_bytes": size,
            "nranks": ranks,
        }
        for rank in range(ranks)
        for number in range(calls)
        for kind, op, kernel, group, size, at in (
            ("collective", "all-reduce", None, 0, 1 << 20, 4e-4),
            ("compute", None, "gemm", None, None, 0.0),
        )
    ]
    groups = pl.DataFrame({"communicator": [0], "size": [ranks], "members": [list(range(ranks))]})
    frames = {"events": pl.DataFrame(rows, infer_schema_length=None), "communicators": groups}
    return Trace.of(frames, {"source": name, "world": ranks})


def ring(ranks: int) -> ringwright.Program:
    reduced = ringwright.Collective("all-reduce", range(ranks), 1 << 20)
    return ringwright.algorithm("ring")(reduced, ringwright.fabric(f"switch:{ranks}"))


def slow() -> object:
    return ringwright.simulate(ringwright.job("vgg16", gpus=8), "dgx-h100:1", policy="p3")


MADE: dict[str, Callable[[], Picture]] = {
    "report": lambda: ringwright.pictures.report(timed()),
    "timeline": lambda: ringwright.pictures.timeline(timed()),
    "timeline of a summary": lambda: ringwright.pictures.timeline(ringwright.summary(timed())),
    "step": lambda: ringwright.pictures.timeline(slow()),  # type: ignore[arg-type]
    "matrix": lambda: ringwright.pictures.matrix(timed()),
    "machine": lambda: ringwright.pictures.machine("dgx-h100:2"),
    "run": lambda: ringwright.pictures.machine(ringwright.simulate("all-reduce", "switch:4", algorithm="ring")),
    "load": lambda: ringwright.pictures.load("all-reduce", "switch:4", algorithm="ring", size="1M"),
    "program": lambda: ringwright.pictures.load(ring(4), "switch:4"),
    "curves": lambda: ringwright.pictures.curves("all-reduce", "switch:4", algorithms=["ring"], sizes=["64K", "1M"]),
    "steps": lambda: ringwright.pictures.steps(ring(4)),
}


@pytest.mark.parametrize("name", MADE)
def test_a_picture_is_a_page_that_loads_nothing_in_a_frame_of_its_own(name: str) -> None:
    picture = MADE[name]()
    frame = picture._repr_html_()
    assert re.fullmatch(r'<iframe sandbox="allow-scripts" title="[^"]*" style="[^"]*" srcdoc="[^"]*"></iframe>', frame)
    page = picture.page
    assert unescape(frame.partition('srcdoc="')[2].partition('"')[0]) == page
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert len(page) < 2 << 20
    assert repr(picture).startswith("Picture(")
    assert re.search(r"<svg|<canvas|rank-timeline", page)
    assert MADE[name]().page == page, "the same picture twice"


def test_a_picture_is_saved_as_a_page(tmp_path: Path) -> None:
    picture = MADE["matrix"]()
    target = picture.save(tmp_path / "matrix.html")
    assert target.read_text() == picture.page
    with pytest.raises(UsageError, match="exists"):
        picture.save(target)
    assert picture.save(target, force=True) == target


def test_names_from_files_are_never_markup() -> None:
    machine = replace(ringwright.fabric("switch:4"), name=EVIL)
    for picture in (
        ringwright.pictures.timeline(timed(name=EVIL)),
        ringwright.pictures.matrix(timed(name=EVIL)),
        ringwright.pictures.machine(machine),
        ringwright.pictures.steps(replace(ring(4), name=EVIL)),
    ):
        frame = picture._repr_html_()
        assert frame.count("<") == 2
        assert "<script>alert" not in picture.page
        assert len(picture.title) <= 200


def test_what_cannot_be_drawn_says_why_and_what_to_do() -> None:
    log = ringwright.read(ringwright.sample())
    with pytest.raises(UsageError, match="no timeline") as told:
        ringwright.pictures.timeline(log)
    assert "ringwright run" in told.value.remedy
    for empty in (ringwright.pictures.timeline, ringwright.pictures.matrix):
        with pytest.raises(UsageError):
            empty(Trace.of({}))
    assert ringwright.pictures.report(Trace.of({})).page
    with pytest.raises(UsageError, match="more than a picture can show"):
        ringwright.pictures.machine("torus:20x20")
    with pytest.raises(UsageError, match="too many"):
        ringwright.pictures.steps(ring(128))
    with pytest.raises(UsageError, match="two sizes"):
        ringwright.pictures.curves("all-reduce", "switch:4", sizes=["1M"])
    with pytest.raises(UsageError, match="are lists"):
        ringwright.pictures.curves("all-reduce", "switch:4", algorithms="ring")
    run = ringwright.simulate("all-reduce", "switch:4", algorithm="ring", engine="closed-form")
    with pytest.raises(UsageError, match="follows no links"):
        ringwright.pictures.machine(run)
    with pytest.raises((InfeasibleError, UsageError)):
        ringwright.pictures.load("all-reduce", "switch:4", faults=["link 0-switch down"])


def test_an_answer_is_a_dict_that_shows_itself() -> None:
    found = ringwright.summary(timed())
    plain = dict(found)
    assert found == plain
    assert json.loads(json.dumps(found, default=str)) == json.loads(json.dumps(plain, default=str))
    for again in (copy.deepcopy(found), copy.copy(found)):
        assert again == found
        assert again._repr_html_() == found._repr_html_()  # type: ignore[attr-defined]
    page = found._repr_html_()  # type: ignore[attr-defined]
    assert "all-reduce" in page
    assert "<script" not in page


def test_a_calibration_shows_the_rates_of_its_links() -> None:
    from ringwright.costs.calibration import load, names

    for name in names():
        held = load(name)
        page = held._repr_html_()
        assert held.fabric in page
        assert page.count("<tr>") == 1 + sum(each is not None for each in (held.inside, held.outside))


class _Printer:
    def __init__(self) -> None:
        self.said = ""

    def text(self, text: str) -> None:
        self.said += text


def test_rows_are_shown_by_the_columns_that_hold_one_value_each() -> None:
    data = {"schema": "s/1", "rows": [{"a": EVIL, "b": [1], "c": None, "d": 1.23456789}] * 40}
    told = shown(data, rows_shown("things", "missing", "rows"))
    page = told._repr_html_()  # type: ignore[attr-defined]
    assert page.startswith("<p><b>things: 40 rows</b></p>")
    assert "<th>a</th><th>d</th></tr>" in page
    assert "1.23457" in page
    assert "and 10 more" in page
    assert "<script" not in page
    printer = _Printer()
    told._repr_pretty_(printer, _is_cycle=False)  # type: ignore[attr-defined]
    assert printer.said == "s/1: things: 40 rows"
    assert shown({}, rows_shown("things", "rows"))._repr_html_() == "<p><b>things: 0 rows</b></p>"  # type: ignore[attr-defined]


def test_a_difference_takes_traces_paths_and_summaries(tmp_path: Path) -> None:
    before, after = timed(), timed(calls=12)
    folder = before.save(tmp_path / "before")
    whole = ringwright.diff(before, after)
    assert whole["changed_share"] > 0
    assert "calls before" in whole._repr_html_()  # type: ignore[attr-defined]
    assert ringwright.diff(str(folder), after)["changes"] == whole["changes"]
    summaries = ringwright.diff(ringwright.summary(before), ringwright.summary(after))
    assert summaries["changes"] == whole["changes"]
    assert summaries["disturbance"] is None


def test_advice_takes_a_model_and_shows_its_changes() -> None:
    told = ringwright.advice("gpt3-125m", "switch:4,rate=100Gb/s", may=["ddp"], budget=5, seed=1)
    page = told._repr_html_()  # type: ignore[attr-defined]
    assert told["job"].startswith("gpt3-125m")
    assert all(each["spelling"] in page for each in told["changes"])
    with pytest.raises(UsageError, match="gpus is of a model"):
        ringwright.advice(timed(), gpus=8)
    with pytest.raises(UsageError, match="no seed"):
        ringwright.advice("gpt3-125m", gpus=4, seed=-1)
    with pytest.raises(UsageError, match="no layer"):
        ringwright.advice("gpt3-125m", gpus=4, may="everything")
