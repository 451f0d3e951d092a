"""A running job followed: rates, who is behind, alerts, and what is handed on."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ringwright.capture.live import live_late
from ringwright.capture.live.following import Follower, Snapshot, follow
from ringwright.capture.live.live_alerts import METRICS as ASKED
from ringwright.capture.live.live_alerts import AlertRule, AlertWatch, read_rules
from ringwright.capture.live.live_hand_over import HandOver
from ringwright.capture.live.live_metrics import metrics_of
from ringwright.cli import main
from ringwright.formats.exports.grafana import dashboard
from ringwright.formats.exports.otlp import REST_S, OtlpSender
from ringwright.formats.exports.prometheus import LIVE_METRICS, METRICS, MetricSample, lines
from ringwright.ground.errors import InputError, UsageError
from ringwright.reports.live import drawn, screen

LINE = (
    "node{rank}:{pid}:2 [0] NCCL INFO {op}: opCount {n:x} sendbuff 0x1 recvbuff 0x2 count 262144 datatype 7 op 0 root 0 "
    "comm 0xa{rank} [nranks=2] stream 0x3\n"
)
INIT = "node{rank}:{pid}:2 [0] NCCL INFO comm 0xa{rank} rank {rank} nranks 2 cudaDev 0 busId 1000 commId 0xabc - Init COMPLETE\n"


class Job:
    """A log of two ranks, and a clock that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "nccl.log"
        self.now_s = 0.0
        self.made = [0, 0]
        self._write("".join(INIT.format(rank=rank, pid=10 + rank) for rank in (0, 1)))

    def _write(self, text: str) -> None:
        with self.log.open("a") as out:
            out.write(text)

    def call(self, rank: int, times: int = 1, op: str = "AllReduce") -> None:
        for _ in range(times):
            self._write(LINE.format(rank=rank, pid=10 + rank, n=self.made[rank], op=op))
            self.made[rank] += 1

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds

    def follower(self, *rules: AlertRule) -> Follower:
        return Follower([str(self.log)], watch=AlertWatch(rules) if rules else None, clock=lambda: self.now_s)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_rates_are_of_what_is_new(job: Job) -> None:
    follower = job.follower()
    assert "no operation yet" in follower.look().waiting
    for rank in (0, 1):
        job.call(rank, 10)
    first = follower.look()
    assert (first.operations[0]["count"], first.operations[0]["per_s"], first.operations[0]["gbs"]) == (10, None, None)
    job.pass_(2.0)
    for rank in (0, 1):
        job.call(rank, 40)
    second = follower.look()
    (row,) = second.operations
    assert (row["count"], row["new"], row["per_s"]) == (50, 40, 20.0)
    assert row["gbs"] == pytest.approx(20 * (1 << 20) / 1e9)
    assert [(size["message_size"], size["new"]) for size in second.sizes] == [("1-2MB", 40)]
    job.pass_(5.0)
    still = follower.look()
    assert (still.operations[0]["new"], still.operations[0]["per_s"], still.operations[0]["gbs"]) == (0, 0.0, 0.0)
    assert still.quiet_s == 5.0
    job.pass_(1.0)
    job.call(0)
    assert follower.look().operations[0]["per_s"] == 1.0


def test_a_log_that_is_caught_up_with_has_no_rates(job: Job) -> None:
    for rank in (0, 1):
        job.call(rank, 50)
    follower = Follower([str(job.log)], most_bytes=5000, clock=lambda: job.now_s)
    seen = []
    while not seen or seen[-1].left_bytes:
        seen.append(follower.look())
        job.pass_(1.0)
    assert len(seen) == 3
    assert all(row["per_s"] is None for snapshot in seen for row in snapshot.operations)
    job.call(0)
    assert follower.look().operations[0]["per_s"] == 1.0


def test_who_is_behind_and_does_not_move(job: Job) -> None:
    follower = job.follower()
    for turn in range(4):
        job.call(0, 5)
        job.call(1, 5 if turn == 0 else 0)
        late = follower.look().late
        job.pass_(1.0)
    assert [(row["rank"], row["host"], row["behind"], row["looks"], row["still_looks"]) for row in late] == [
        (1, "node1", 15, 3, 3)
    ]
    assert follower.look().late[0]["still_looks"] == 4
    job.call(1, 15)
    assert follower.look().late == []


def test_ranks_that_no_line_tells_are_their_processes(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    alone = LINE.replace("[nranks=2]", "[nranks=4]").replace("comm 0xa{rank}", "comm 0xa")
    log.write_text(
        "".join(
            alone.format(rank=rank, pid=10 + rank, n=n, op="AllReduce")
            for rank in (0, 1, 2)
            for n in range(1 + 2 * (rank == 2))
        )
    )
    snapshot = Follower([str(log)]).look()
    assert sorted((row["process"], row["behind"]) for row in snapshot.late) == [("node0:10", 2), ("node1:11", 2)]
    labels = [str(each) for each in metrics_of(snapshot)]
    assert len(labels) == len(set(labels))
    assert sum("process node1:11" in each for each in labels) == 2


def test_recent_late_ranks_of_timed_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        rows: list[Any] = [
            {
                "ringwright": "calls/1",
                "host": "n",
                "pid": rank,
                "rank": rank,
                "world": 2,
                "wall_ns": 10**18,
                "clock_ns": 0,
            },
            ["g", 0, "0", "default_pg", "gloo", 2, rank, [0, 1]],
        ]
        for number in range(60):
            at_ns = number * 10**9
            # In the first half rank 0 comes last, in the second rank 1.
            is_last = rank == (number >= 30)
            begin, end = at_ns + (400_000_000 if is_last else 0), at_ns + 410_000_000
            call = [
                "b",
                number,
                begin,
                0,
                "all-reduce",
                "float32",
                256,
                1024,
                1024,
                None,
                None,
                "sum",
                None,
                0,
                1,
                number,
            ]
            rows += [call, ["e", number, end]]
        (tmp_path / f"calls.n.{rank}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lately = Follower([str(tmp_path)], window_s=25.0).look()
    assert lately.recent is not None
    assert lately.recent["ranks"] == [1]
    # Where there are too many to judge them all, those that ended last are.
    monkeypatch.setattr(live_late, "MOST_JUDGED", 40)
    newest = Follower([str(tmp_path)]).look()
    assert newest.recent is not None
    assert (newest.recent["ranks"], newest.verdict) == ([1], newest.recent)
    assert (newest.operations, newest.coverage) == (lately.operations, lately.coverage)


def test_the_follower_waits_for_what_is_not_there(tmp_path: Path) -> None:
    follower = Follower([str(tmp_path / "none")])
    assert "nothing at" in follower.look().waiting


def test_a_saved_capture_and_standard_input(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.call(0, 3)
    capture = tmp_path / "job.trace"
    assert main(["convert", str(job.log), "-o", str(capture)]) == 0
    saved = Follower([str(capture)])
    assert [saved.look().operations[0]["count"] for _ in range(2)] == [3, 3]
    both = Follower([str(capture), str(job.log)]).look()
    assert both.trace is not None
    assert both.operations[0]["count"] == 3
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(job.log.read_bytes())))
    piped = Follower(["-"])
    assert [piped.look().operations[0]["count"] for _ in range(2)] == [3, 3]


def test_a_steady_view_shows_a_job_that_stands_still(job: Job) -> None:
    job.call(0, 3)
    seen: list[Snapshot] = []

    def sleep(pause_s: float) -> None:
        job.pass_(pause_s)
        if len(seen) >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seen.extend(follow([str(job.log)], 2.0, clock=lambda: job.now_s, sleep=sleep, is_steady=True))
    assert [snapshot.quiet_s for snapshot in seen] == [0.0, 2.0, 4.0, 6.0]


# ------------------------------------------------------------------------------------------------------------------ alerts
def test_an_alert_needs_its_looks(job: Job) -> None:
    follower = job.follower(AlertRule("calls_per_s", below=10.0, looks=2, op="all-reduce"))
    job.call(0, 5)
    assert follower.look().alerts == []
    fired = []
    for calls in (5, 5, 50, 5, 5, 5):
        job.pass_(1.0)
        job.call(0, calls)
        fired.append([(alert["looks"], alert["value"]) for alert in follower.look().alerts])
    assert fired == [[], [(2, 5.0)], [], [], [(2, 5.0)], [(3, 5.0)]]


@pytest.mark.parametrize(
    ("rule", "of"),
    [
        (AlertRule("gbs", below=1.0), "all operations"),
        (AlertRule("gbs", below=1.0, op="all-reduce", size="1-2MB"), "all-reduce"),
        (AlertRule("calls_per_s", above=5.0, size="1-2MB"), "all operations"),
        (AlertRule("behind", above=5, rank=1), "rank 1 in communicator 0"),
        (AlertRule("still_looks", above=0, host="node1"), "rank 1 in communicator 0"),
        (AlertRule("quiet_s", below=1.0), "all files"),
        (AlertRule("errors", below=1), "the recording"),
    ],
)
def test_every_metric_raises_an_alert(job: Job, rule: AlertRule, of: str) -> None:
    follower = job.follower(rule)
    for rank in (0, 1):
        job.call(rank, 2)
    follower.look()
    job.pass_(1.0)
    job.call(0, 10)
    (alert,) = follower.look().alerts
    assert alert["of"] == of
    assert rule.metric in alert["text"]


def test_rules_that_do_not_hold_raise_nothing(job: Job) -> None:
    rules = [
        AlertRule("behind", above=5, rank=0),
        AlertRule("gbs", below=1.0, op="all-gather"),
        AlertRule("nic_gbs", above=0),
    ]
    follower = job.follower(*rules, AlertRule("calls_per_s", above=5.0, size="1-2GB"))
    job.call(0, 9)
    follower.look()
    job.pass_(1.0)
    job.call(0, 9)
    assert follower.look().alerts == []


def test_a_nic_raises_an_alert(job: Job) -> None:
    job.call(0)
    nic = {"host": "n", "nic": "1", "sent_bytes": 0, "received_bytes": 0, "sent_gbs": 1.0, "received_gbs": 30.0}
    snapshot = replace(job.follower().look(), nics=[nic])
    watch = AlertWatch([AlertRule("nic_gbs", above=25.0, host="n", nic="1"), AlertRule("nic_gbs", above=25.0, nic="2")])
    assert [alert["of"] for alert in watch.look(snapshot)] == ["n NIC 1"]


def test_rules_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text(
        '[[alert]]\nname = "slow"\nmetric = "gbs"\nop = "all-reduce"\nsize = "1-2MB"\nbelow = 10\nlooks = 3\n'
        '[[alert]]\nmetric = "behind"\nrank = 3\nabove = 100\n'
    )
    slow, behind = read_rules(path)
    assert slow == AlertRule("gbs", below=10, looks=3, name="slow", op="all-reduce", size="1-2MB")
    assert behind.title == "behind rank 3"


def test_the_rules_of_the_page_are_rules(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "live.md").read_text()
    path = tmp_path / "alerts.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert [rule.metric for rule in read_rules(path)] == ["gbs", "still_looks", "quiet_s"]
    assert all(f"| `{name}` |" in page for name in ASKED)
    assert all(name in page or "received" in name for name in (*METRICS, *LIVE_METRICS))
    keys = Snapshot(0.0, None).document()
    assert all(f"`{key}`" in page for key in keys if key != "schema")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[alert]]\nmetric = "gbs"\nbelw = 1', "no key is 'belw': did you mean below"),
        ('[[alrt]]\nmetric = "gbs"', "no key is 'alrt': did you mean alert"),
        ('[[alert]]\nmetric = "call_per_s"\nbelow = 1', "did you mean calls_per_s"),
        ('[[alert]]\nmetric = "gbs"', "one threshold"),
        ('[[alert]]\nmetric = "gbs"\nbelow = 1\nabove = 2', "one threshold"),
        ('[[alert]]\nmetric = "gbs"\nbelow = "1"', "below cannot be '1'"),
        ('[[alert]]\nmetric = "gbs"\nbelow = nan', "below cannot be nan"),
        ('[[alert]]\nmetric = "gbs"\nbelow = 1\nlooks = 0', "looks cannot be 0"),
        ('[[alert]]\nmetric = "gbs"\nbelow = 1\nrank = 1', "gbs is of no rank"),
        ("alert = 1", "no rule"),
        ("", "no rule"),
    ],
)
def test_rules_that_are_none_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        read_rules(path)
    assert str(path) in refused.value.where
    assert refused.value.remedy


@pytest.mark.parametrize("data", [b"[[alert", b"\xff", None])
def test_a_file_that_cannot_be_read(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "alerts.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match="no rules"):
        read_rules(path)


def test_the_verb_fails_on_an_alert(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.call(0, 5)
    rules = tmp_path / "alerts.toml"
    rules.write_text('[[alert]]\nmetric = "behind"\nabove = 3')
    told = ["live", str(job.log), "--alerts", str(rules)]
    assert main([*told, "--once"]) == 0
    assert "ALERT behind" in capsys.readouterr().out
    assert main([*told, "--json", "--fail-on-alert"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["alerts"][0]["of"] == "rank 1 in communicator 0"
    rules.write_text('[[alert]]\nmetric = "behind"\nabove = 30')
    assert main([*told, "--once", "--fail-on-alert"]) == 0


# --------------------------------------------------------------------------------------------------------------- handed on
@pytest.fixture
def collector() -> Iterator[Any]:
    """A server that keeps what it gets and answers as it is told."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(server.status)
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
            self.end_headers()
            self.wfile.write(server.answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server: Any = HTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.status, server.answer = [], 200, b"{}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_metrics_are_posted(job: Job, collector: Any) -> None:
    job.call(0, 5)
    job.call(1, 3)
    follower = job.follower(AlertRule("behind", above=1))
    hand_over = HandOver(otlp=f"http://127.0.0.1:{collector.server_port}")
    follower.look()
    job.pass_(1.0)
    job.call(0, 5)
    assert hand_over(follower.look()).events == []
    path, kind, body = collector.got[0]
    assert (path, kind) == ("/v1/metrics", "application/json")
    (resource,) = body["resourceMetrics"]
    metrics = {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}
    total = metrics["nccl_collectives_total"]["sum"]
    assert (total["isMonotonic"], total["aggregationTemporality"]) == (True, 2)
    assert total["dataPoints"][0]["asDouble"] == 10.0
    assert int(total["dataPoints"][0]["startTimeUnixNano"]) <= int(total["dataPoints"][0]["timeUnixNano"])
    assert metrics["ringwright_calls_per_second"]["gauge"]["dataPoints"][0]["asDouble"] == 5.0
    behind = metrics["ringwright_rank_behind_calls"]["gauge"]["dataPoints"][0]
    assert {"key": "rank", "value": {"stringValue": "1"}} in behind["attributes"]
    assert metrics["ringwright_alerts"]["gauge"]["dataPoints"][0]["asDouble"] == 7.0


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (500, b"", "Internal Server Error"),
        (302, b"", "302"),
        (200, b'{"partialSuccess": {"rejectedDataPoints": "2"}}', "2 values"),
    ],
)
def test_a_post_that_fails_is_said_once(collector: Any, status: int, answer: bytes, says: str) -> None:
    now = [0.0]
    sender = OtlpSender(f"http://127.0.0.1:{collector.server_port}/x", clock=lambda: now[0])
    values = [MetricSample("ringwright_errors", {}, 1.0)]
    collector.status, collector.answer = status, answer
    told = sender.send(values)
    assert says in told or "redirect" in told.lower() or "Found" in told
    assert [sender.send(values) for _ in range(3)] == ["", "", ""]
    now[0] += REST_S + 1
    assert sender.send(values) == ""
    assert len(collector.got) == 2
    collector.status, collector.answer = 200, b"no json"
    now[0] += REST_S + 1
    assert "taken again" in sender.send(values)
    assert collector.got[-1][0] == "/x"
    assert not any(path == "/elsewhere" for path, _, _ in collector.got)


def test_a_collector_that_is_away_stops_nothing(job: Job) -> None:
    job.call(0)
    hand_over = HandOver(otlp="http://127.0.0.1:9")  # discard: nobody listens
    assert "not taken" in hand_over(job.follower().look()).events[0]
    assert hand_over(job.follower().look()).events == []


@pytest.mark.parametrize("url", ["ftp://host", "localhost:4318", "http://", "/v1/metrics"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        OtlpSender(url)


def test_the_textfile_has_the_gauges_of_a_look(job: Job, tmp_path: Path) -> None:
    follower, target = job.follower(AlertRule("behind", above=1)), tmp_path / "job.prom"
    hand_over = HandOver(target)
    hand_over(follower.look())
    assert not target.exists()
    job.call(0, 5)
    job.call(1, 3)
    hand_over(follower.look())
    job.pass_(2.0)
    job.call(0, 4)
    hand_over(follower.look())
    text = target.read_text()
    assert 'ringwright_calls_per_second{collective="AllReduce"} 2\n' in text
    assert 'ringwright_rank_behind_calls{rank="1",host="node1",communicator="0"} 6\n' in text
    assert "ringwright_quiet_seconds 0\n" in text
    assert text.count("# TYPE ringwright_alerts gauge\n") == 1
    assert "nccl_collectives_total{" in text


def test_the_dashboard_asks_for_metrics_that_are_written(job: Job) -> None:
    document = json.loads(dashboard())
    asked = set()
    for panel in document["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"\b(?:nccl|ringwright)_\w+", target["expr"]))
    assert asked == set(METRICS) | set(LIVE_METRICS)
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    # And each of them comes out of the writer, of a look that has everything.
    for rank in (0, 1):
        job.call(rank, 2)
    follower = job.follower(AlertRule("behind", above=0))
    follower.look()
    job.pass_(1.0)
    job.call(0, 2)
    nic = {"host": "n", "nic": "1", "sent_bytes": 0, "received_bytes": 0, "sent_gbs": 1.0, "received_gbs": 3.0}
    snapshot = replace(follower.look(), nics=[nic])
    assert snapshot.trace is not None
    timed = snapshot.trace.table("events").with_columns(duration_s=0.001)
    trace = replace(snapshot.trace, tables={**snapshot.trace.tables, "events": timed.lazy()})
    live = [each for each in metrics_of(snapshot) if each.name in LIVE_METRICS]
    written = {re.split(r"[ {]", line)[0] for line in lines(trace, live) if not line.startswith("#")}
    assert written == asked


def test_the_verb_writes_the_dashboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "dashboard.json"
    assert main(["live", "--grafana", str(target)]) == 0
    assert target.read_text() == dashboard()
    assert main(["live", "--grafana", str(target)]) == 2
    assert main(["live", "--grafana", str(target), "--force"]) == 0
    assert "import it in Grafana" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------------- shown
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_look_fits_its_columns(job: Job, width: int) -> None:
    from rich.console import Console

    follower = job.follower(AlertRule("still_looks", above=0, name="rank that stands"))
    for _ in range(5):
        job.call(0, 5)
        job.call(0, 2, "AllGather")
        snapshot = follower.look()
        job.pass_(1.0)
    nic = {"host": "node1", "nic": "1", "sent_bytes": 0, "received_bytes": 0, "sent_gbs": 1.0, "received_gbs": 3.0}
    out = io.StringIO()
    whole = replace(snapshot, nics=[nic], events=["a.log was replaced\x1b[31m"], left_bytes=5_000_000)
    Console(file=out, width=width).print(drawn(whole, width))
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= width
    words = " ".join(text.split())
    for part in (
        "all-reduce",
        "all-gather",
        "ALERT rank that stands",
        "behind: rank 1",
        "node1 1",
        "5 MB still to read",
    ):
        assert part in words
    assert "\x1b[31m" not in text


def test_json_is_a_line_a_look(job: Job) -> None:
    job.call(0, 3)
    out = io.StringIO()
    follower = job.follower()
    with screen(out, as_json=True) as show:
        show(follower.look())
        show(follower.look())
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert first["schema"] == second["schema"] == "ringwright.live/1"
    assert {"operations", "verdict", "coverage", "waiting", "late", "nics", "alerts"} <= set(first)


def test_every_metric_of_a_rule_says_what_it_is() -> None:
    assert all(metric.what for metric in ASKED.values())
