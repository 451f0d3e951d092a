"""Terminal and HTML reports on hand-made summaries: nothing hidden, nothing executed, nothing without a bound."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures_summary import HOSTILE, changed_summary, empty_summary, job_summary
from ringwright.analysis.compared import diff, gate
from ringwright.analysis.summary_view import SeenClass
from ringwright.ground.errors import UsageError
from ringwright.reports import cuts, html, layout, terminal
from ringwright.reports.completion import absence, complete, operation_rows
from ringwright.reports.draw import charts

# ------------------------------------------------------------------------------------------------------- terminal


def test_coverage_comes_first_and_lines_fit() -> None:
    text = terminal.text(job_summary())
    assert text.startswith("coverage: 16 of 16 ranks")
    prose = [line for line in text.splitlines() if not line.startswith("    $ ")]
    assert max(len(line) for line in prose) <= 80


@pytest.mark.parametrize("width", [60, 80, 120])
def test_width_is_kept(width: int) -> None:
    lines = terminal.text(job_summary(), width=width).splitlines()
    assert max(len(line) for line in lines if not line.startswith("    $ ")) <= width


def test_every_finding_ends_in_its_command() -> None:
    text = terminal.text(job_summary())
    for finding in job_summary()["findings"]:
        assert f"    $ {finding['command']}\n" in text


def test_no_operation_is_explained() -> None:
    assert "the input is empty" in terminal.text(empty_summary())
    silent = empty_summary()
    silent["ledger"] = {"lines": 10, "understood": 10, "repaired": 0, "refused": 0, "other": 0}
    assert "NCCL_DEBUG_SUBSYS=INIT,COLL" in terminal.text(silent, width=200)
    foreign = {**silent, "ledger": {"lines": 10, "understood": 0, "repaired": 0, "refused": 0, "other": 10}}
    assert "no line of NCCL was recognised" in absence(complete(foreign))


def test_a_log_cannot_drive_the_terminal() -> None:
    summary = job_summary()
    summary["warnings"] = ["\x1b]0;owned\x07\x1b[2J", "[red]markup[/red]", "line\nbreak"]
    text = terminal.text(summary)
    assert "\x1b" not in text
    assert "\\x1b[2J" in text
    assert "[red]markup[/red]" in text
    assert "line\\nbreak" in text


def test_the_matrix_states_its_ground() -> None:
    assert "assumed: ring, range 745 GiB to 1.46 TiB" in terminal.text(job_summary())


def test_small_shares_are_not_zero() -> None:
    assert layout.percent(0.00001) == "<0.1 %"
    assert layout.percent(0.0) == "0.0 %"


def test_required_keys_are_enough() -> None:
    summary = empty_summary()
    summary["operations"] = [{"op": "all-reduce", "count": 1, "records": 2, "bytes": 8, "size_histogram": []}]
    summary["communicators"] = [{"size": 2, "count": 1}]
    assert "all-reduce" in terminal.text(summary)
    assert "all-reduce" in html.page(summary)


def test_median_is_weighted() -> None:
    rows = {row.op: row for row in operation_rows(complete(job_summary()))}
    assert rows["all-reduce"].median_bytes == 16_384
    assert rows["broadcast"].min_bytes == 24


# ----------------------------------------------------------------------------------------------------------- HTML


class _Page(HTMLParser):
    """Collects elements with their attributes and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_hostile_names_stay_text() -> None:
    text = html.page(job_summary(hostile=True))
    parsed = _Page(text)
    assert not [tag for tag, _ in parsed.tags if tag == "img"]
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert len(parsed.scripts) == 2
    assert HOSTILE not in text
    assert "\u2028" not in text
    labels = json.loads(parsed.scripts[0])["matrix"]["labels"]
    assert labels[0].startswith("rank 0 (node00</script>")


def test_the_policy_allows_the_own_script_alone() -> None:
    text = html.page(job_summary())
    digest = base64.b64encode(hashlib.sha256(_Page(text).scripts[1].encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in text or f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_the_page_asks_nothing_of_a_network() -> None:
    text = html.page(job_summary(hostile=True))
    assert not re.search(r"https?://|//cdn|@import|url\(", text)
    links = [a.get("src") or a.get("href") for _, a in _Page(text).tags if "src" in a or "href" in a]
    assert all(link and link.startswith(("#", "data:")) for link in links)


def test_sections_and_tables_are_there() -> None:
    parsed = _Page(html.page(job_summary()))
    ids = {attributes.get("id") for _, attributes in parsed.tags}
    names = "operations sizes algorithms pairs hosts nics communicators bursts claims ledger ranks by_role".split()
    assert {f"table-{name}" for name in names} <= ids
    assert {"coverage", "heat", "map", "chart-size-1", "chart-size-2", "chart-time"} <= ids
    assert all(attributes.get("aria-label") for tag, attributes in parsed.tags if tag in ("canvas", "svg"))


def test_an_empty_page_says_why() -> None:
    text = html.page(empty_summary())
    assert "the input is empty" in text
    assert 'id="no-timeline"' in text
    assert "<canvas" not in text


def test_without_time_stamps_the_reason_is_given() -> None:
    text = html.page({**job_summary(), "timeline": None})
    assert "NCCL_DEBUG_TIMESTAMP_LEVELS" in text


def _enormous() -> dict[str, Any]:
    """A summary with far more of everything than a page may hold."""
    summary = job_summary(hosts=32)
    summary["pair_bytes"] = [{"src": s, "dst": d, "bytes": s * 1_000_003 + d} for s in range(256) for d in range(256)]
    summary["operations"][0]["size_histogram"] = [{"size_bytes": 8 * n, "count": n} for n in range(1, 30_000)]
    summary["warnings"] = ["w" * 5000] * 5000
    summary["findings"] = [{**summary["findings"][0], "detail": "d" * 50_000}] * 300
    summary["claims"] = [{**summary["claims"][0], "note": "n" * 9000}] * 3000
    summary["ledger_detail"] = [{**summary["ledger_detail"][0], "example": "e" * 9000}] * 3000
    summary["communicator_list"] = [
        {**c, "communicator": n} for n in range(400) for c in summary["communicator_list"][:5]
    ]
    summary["timeline"]["series"] = [{"op": "all-reduce", "bytes": [1e9] * 100_000}]
    return summary


def test_a_page_is_bounded_and_says_what_it_cut() -> None:
    text = html.page(_enormous())
    assert len(text.encode()) < 2_000_000
    assert "rows are cut here" in text
    assert "communicators are not drawn" in text
    assert "are drawn as one" in text
    assert "bytes are rounded to three digits" in text


def test_many_ranks_become_hosts() -> None:
    view = complete(job_summary(hosts=64))
    drawn = cuts.matrix(view)
    assert drawn is not None
    assert (drawn.unit, drawn.size) == ("host", 64)
    total = sum(drawn.values[index] for index in drawn.sent[2::3])
    assert total == sum(pair.bytes for pair in view.pair_bytes)
    assert "512 ranks are drawn as 64 hosts" in drawn.note


def test_many_hosts_are_cut_aloud() -> None:
    drawn = cuts.matrix(complete(job_summary(hosts=300, ranks_per_host=2)))
    assert drawn is not None
    assert drawn.size == 256
    assert "44 are cut" in drawn.note


def test_ranks_without_hosts_become_blocks() -> None:
    summary = {**job_summary(hosts=64), "ranks": []}
    drawn = cuts.matrix(complete(summary))
    assert drawn is not None
    assert (drawn.unit, drawn.size) == ("block", 256)


@given(st.sets(st.integers(0, 5000), max_size=200))
def test_segments_hold_exactly_their_members(members: set[int]) -> None:
    flat = cuts.segments(sorted(members))
    found = [flat[at] + flat[at + 1] * k for at in range(0, len(flat), 3) for k in range(flat[at + 2])]
    assert found == sorted(members)


@given(
    st.recursive(
        st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
    )
)
def test_json_in_a_script_is_inert_and_unchanged(value: Any) -> None:
    text = html.safe_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_histograms_hold_all_calls() -> None:
    view = complete(job_summary())
    chart = charts.histogram(view, charts.colours(view), "count")
    assert chart is not None
    without = charts.histogram(replace(view, size_classes=[]), charts.colours(view), "count")
    assert without == chart  # derived from the exact sizes when the classes are absent
    zero = replace(view, size_classes=[SeenClass(op="send", log2_low_bytes=0, count=3, bytes=0)])
    assert charts.histogram(zero, charts.colours(view), "bytes") is not None


@pytest.mark.parametrize(
    ("given_name", "expected"),
    [
        ("job/nccl.log", "nccl.html"),
        ("x.log.gz", "x.html"),
        ("-", "stdin.html"),
        ("/a/job/", "job.html"),
        ("/", "job.html"),
    ],
)
def test_the_page_is_named_after_the_input(given_name: str, expected: str) -> None:
    assert str(html.default_name(given_name)) == expected


# ------------------------------------------------------------------------------------------------- diff and gate


def test_equal_runs_do_not_differ() -> None:
    result = diff.diff(job_summary(), job_summary())
    assert result["changes"] == []
    assert result["changed_share"] == 0.0


def test_changes_are_ranked_by_bytes() -> None:
    result = diff.diff(job_summary(), changed_summary())
    deltas = [abs(change["delta_bytes"]) for change in result["changes"]]
    assert deltas == sorted(deltas, reverse=True)
    assert {change["kind"] for change in result["changes"]} == {"algorithm", "operation", "size"}
    assert result["changed_share"] == pytest.approx(96 * 134_217_728 / (111_992_000_000 + 96 * 134_217_728), rel=0.02)


def test_a_difference_is_antisymmetric() -> None:
    there, back = diff.diff(job_summary(), changed_summary()), diff.diff(changed_summary(), job_summary())
    assert there["changed_share"] == back["changed_share"]
    assert sum(c["delta_bytes"] for c in there["changes"]) == -sum(c["delta_bytes"] for c in back["changes"])


def test_runs_on_other_machines_are_not_compared_by_host() -> None:
    elsewhere = job_summary()
    elsewhere["host_pair_bytes"] = [{"src": "a", "dst": "b", "bytes": 1}]
    result = diff.diff(job_summary(), elsewhere)
    assert not [change for change in result["changes"] if change["kind"] == "host-pair"]
    assert "the runs share no host name" in " ".join(result["notes"])


def test_nothing_against_something_is_wholly_changed() -> None:
    result = diff.diff(empty_summary(), job_summary())
    assert result["changed_share"] == 1.0
    assert "the first input holds no operation" in result["notes"]


def test_a_healthy_job_passes_the_default_gate() -> None:
    result = gate.check(job_summary())
    assert result["passed"]
    assert result["line"].startswith("PASS 3 checks")


@pytest.mark.parametrize(
    ("limit", "passes"),
    [
        ({"op": "all-reduce", "max_size": "64K", "max_count": 8400}, True),
        ({"op": "all-reduce", "max_size": "64K", "max_count": 8399}, False),
        ({"op": "all-reduce", "min_size": "128M", "min_count": 96}, True),
        ({"op": "all-reduce", "min_size": "128M", "min_count": 97}, False),
        ({"op": "all-gather", "max_share": "30%"}, False),
        ({"max_bytes": "1T"}, True),
        ({"op": "broadcast", "max_bytes": "1M"}, False),
    ],
)
def test_limits_judge_their_size_class_alone(limit: dict[str, Any], passes: bool) -> None:
    thresholds = gate.read_thresholds(None, limit=[limit])
    assert gate.check(job_summary(), thresholds)["passed"] is passes


def test_an_empty_input_fails_the_gate_unless_told() -> None:
    assert not gate.check(empty_summary())["passed"]
    assert gate.check(empty_summary(), gate.read_thresholds(None, allow_empty=True))["passed"]


def test_ranks_verdict_and_loss_are_judged() -> None:
    summary = job_summary()
    summary["verdict"] = {"kind": "hang", "ranks": [3], "hosts": ["node00"], "confidence": 0.9, "evidence": ["x"]}
    summary["losses"] = ["job.log.gz: byte 10: input damaged, rest not read: EOFError"]
    summary["ledger"]["refused"] = 2000
    thresholds = gate.read_thresholds(None, expected_ranks=32, allow_truncated=False)
    failed = {check["check"] for check in gate.check(summary, thresholds)["checks"] if not check["passed"]}
    assert failed == {"verdict", "complete", "refused", "ranks"}
    assert "\n" not in gate.check(summary, thresholds)["line"]


@pytest.mark.parametrize(
    "text",
    [
        "max_refuse = 1",
        "max_refused_share = '101%'",
        "limit = 3",
        "[[limit]]\nop = 'send'",
        "[[limit]]\nmax_size = '1Q'\nmax_count = 1",
        "[[limit]]\nmax_count = 'many'",
        "expected_ranks = 'all'",
        "allow_verdict = 1",
        "not toml",
    ],
)
def test_a_wrong_threshold_is_a_usage_error(tmp_path: Any, text: str) -> None:
    path = tmp_path / "thresholds.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        gate.read_thresholds(path)
    assert raised.value.remedy
