"""An algorithm that declines is a row with its reason beside those that answer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.calls.simulated_document import SimulatedCalls
from ringwright.cli import main
from ringwright.ground.documents import read_json
from ringwright.ground.errors import DeclinedError
from ringwright.reports.calls import simulated

ASKED = ["simulate", "all-reduce", "--fabric", "switch:6", "-b", "1K", "-e", "1M", "-f", "1024", "--algorithm"]


def test_what_declines_is_a_row_and_the_others_stand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "nvls,ring,pat,binary-tree", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = {(row["algorithm"], row["size_bytes"]): row for row in result["rows"]}
    assert len(rows) == 8
    for name, why in (("pat", "does no all-reduce"), ("nvls", "aggregates")):
        assert why in rows[name, 1024]["declined"]
        assert rows[name, 1024]["time_us"] is None
    assert all(rows[name, size]["time_us"] > 0 for name in ("ring", "binary-tree") for size in (1 << 10, 1 << 20))
    assert rows["ring", 1024]["declined"] is None
    text = io.StringIO()
    simulated.write(read_json(SimulatedCalls, result), text, width=80)
    assert text.getvalue().count("declines") == 4
    assert "pat does no all-reduce" in text.getvalue()


def test_a_page_leaves_out_what_has_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main([*ASKED, "pat,ring", "-o", str(page)]) == 0
    assert "pat declined: " in page.read_text()


def test_where_all_decline_the_reason_is_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "pat,nvls"]) in (2, 5)
    assert "does no all-reduce" in capsys.readouterr().err
    assert main([*ASKED, "ring,no-such-system"]) == 2  # what is misspelled is an error, not a row


def test_a_policy_that_declines_a_job_is_a_row_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ringwright.jobs import study

    def declining(workload: Any, costs: Any) -> Any:
        raise DeclinedError("this job has nothing to send")

    known = study.scheduled_by
    instead = lambda name: (name, declining) if name == "p3" else known(name)  # noqa: E731
    monkeypatch.setattr(study, "scheduled_by", instead)
    asked = ["simulate", "--model", "vgg16", "--gpus", "8", "--fabric", "dgx-h100:1", "--policy"]
    page = tmp_path / "page.html"
    assert main([*asked, "p3,none", "-o", str(page)]) == 0
    assert "p3 declined: this job has nothing to send" in capsys.readouterr().out
    assert "p3 declined: this job has nothing to send" in page.read_text()
    assert main([*asked, "none,p3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["policy"], row["declined"]) for row in rows] == [
        ("none", None),
        ("p3", "this job has nothing to send"),
    ]
    assert rows[1]["step_us"] is None
    assert main([*asked, "p3"]) == 5
    assert main([*asked, "none,no-such"]) == 2
