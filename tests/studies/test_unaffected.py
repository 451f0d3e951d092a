"""A fault makes nothing faster, and one that changes nothing says why: a case for each reason."""

from __future__ import annotations

import dataclasses
import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from ringwright.calls import unaffected
from ringwright.calls.asked_faults import AskedFaults
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.cli import main
from ringwright.costs.protocols import PROTOCOLS
from ringwright.fabrics import fabric
from ringwright.fabrics._congestion import congestion
from ringwright.ground.errors import EXIT_INFEASIBLE
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
SLOW = "switch:4,rate=1Gb/s,transport=tcp-reno"
LEAVES = "leaf-spine:16,per_leaf=4,spines=2,rate=10Gb/s,transport=ib"
GATHER, SPREAD, CAST = (
    {"op": op, "by": by} for op, by in (("gather", "linear"), ("all-to-all", "direct"), ("broadcast", "binomial"))
)


def asked(
    on: str | Topology,
    *lines: str,
    op: str = "all-reduce",
    by: str = "ring",
    size: int = 1 << 20,
    engine: str | None = "packets",
    beside: str = "",
    group: range | None = None,
) -> dict[str, Any]:
    """Return the row of one answer."""
    healthy, faults = fabric(on) if isinstance(on, str) else on, AskedFaults(lines)
    question = SimulationSpec(
        op,
        faults.on(healthy),
        engine,
        group=group,
        healthy=healthy,
        faults=faults if lines else None,
        beside=(congestion(beside, healthy.n_ranks),) if beside else (),
    )
    row: dict[str, Any] = sweep(question, [by], [size])["rows"][0]
    return row


def reason(row: dict[str, Any]) -> str:
    """Return the one reason of a row that no fault makes longer."""
    (told,) = row["unaffected"]
    assert row["time_us"] >= row["healthy_us"] if row["healthy_us"] else row["time_us"] == row["alone_us"]
    assert isinstance(told["why"], str)
    return told["why"]


REASONS: list[tuple[str, str, dict[str, Any], str]] = [
    (SLOW, "link rank3 loss 1% from 1s", {}, "it begins at 1 s, the collective ends after 13.4 ms"),
    (SLOW, "link rank3 flap 1ms every 10s", {}, "its first outage begins at 8.054 s, the collective ends after"),
    (SLOW, "link rank3 rate 100%", {}, "that is what a healthy one has"),
    (SLOW, "link rank3 latency 0.5us", {}, "that is the latency which it has"),
    (SLOW, "link rank2 rate 50%", {"group": range(2)}, "no message of this program crosses these 2 links"),
    (SLOW, "rank 3 slow 2x", {}, "adding takes no time on this fabric (its rate is not given)"),
    (SLOW, "rank 3 slow 2x", {}, "a collective alone has no compute of rank3 to slow: in a job it would come late"),
    (
        "dgx-h100:2",
        "rank 7 slow 2x",
        {"by": "nccl-2-4", "engine": None},
        "no compute of node0/gpu7 to slow: in a job it would come late (--model, or --arrivals late:7=2ms)",
    ),
    (
        SLOW,
        "link rank3 dead from 5ms to 6ms",
        CAST,
        "no message is on these 2 links while it lasts (from 5,000 us to 6,000 us)",
    ),
    ("dgx-h100:2", "link node0/gpu0>node0/nvswitch loss 0.01%", {}, "nvlink sends again on the link what it loses"),
    (
        SLOW,
        "switch * buffer 16KiB",
        {"engine": "events"},
        "a buffer acts on packets, and the events engine follows none",
    ),
    (
        SLOW,
        "link rank3 ber 1e-5",
        {},
        "mends bit errors of 1e-05: it leaves 6e-34 of the packets broken, and about 2,221",
    ),
    (SLOW, "link rank3 loss 0.0001%", {}, "was lost in the first draw: in the mean one of 1,000,000 is"),
    (SLOW, "link rank3>switch rate 50%", CAST, "only acknowledgements cross rank3 > switch, "),
    (SLOW, "link rank3>switch loss 1%", CAST, "acknowledgements were lost, for which the following ones stand"),
    (SLOW, "link rank3>switch loss 1%", GATHER, "it has slack: rank3 > switch is busy for 34% of the time"),
    (SLOW, "link rank3>switch rate 90%", GATHER, "it has slack: rank3 > switch is busy for 33% of the time"),
    (SLOW, "switch * buffer 64KiB", {}, "no packet had another in front of it in the queue of these 4 links"),
    (SLOW, "switch * buffer 900KiB", GATHER, "the longest queue was 412 KiB, of 900 KiB"),
    (
        SLOW.replace("tcp-reno", "ib"),
        "switch * buffer 32KiB",
        GATHER,
        "a full queue made senders wait, with nothing lost",
    ),
    (SLOW, "link rank3 latency +1ns", {}, "it adds 0.001 us, less than a thousandth of the time"),
    (LEAVES, "link leaf1--spine0 latency +20us", SPREAD, "meet in another order, which by chance takes "),
    (LEAVES, "ecmp unlucky", {"group": range(4)}, "ib takes all equal paths by load, whatever a hash would choose"),
    (
        LEAVES.replace("ib", "roce"),
        "ecmp unlucky",
        {"group": range(4)},
        "no message of this program takes another route",
    ),
]


@pytest.mark.parametrize(
    ("on", "line", "more", "words"), REASONS, ids=[f"{at} {each[1]}" for at, each in enumerate(REASONS)]
)
def test_a_fault_that_changes_nothing_says_why(on: str, line: str, more: dict[str, Any], words: str) -> None:
    row = asked(on, line, **more)
    assert row["unaffected"][0]["fault"] == line
    assert words in reason(row)


def test_a_slow_rank_that_adds_nothing_or_has_slack() -> None:
    top = dataclasses.replace(fabric("switch:4,rate=1Gb/s"), reduce_rate=50e9)
    assert (
        "compute of rank3 to slow: in a job it would come late (--model, or --arrivals late:3=2ms); rank3 adds nothing"
        in reason(asked(top, "rank 3 slow 2x", op="all-gather"))
    )
    six = dataclasses.replace(fabric("switch:6,rate=1Gb/s"), reduce_rate=5e9)
    slack = reason(asked(six, "rank 4 slow 2x", op="reduce", by="binomial", engine="events"))
    assert "adding has slack: rank4 adds for 2% of the time, slow as it is" in slack
    assert asked(top, "rank 3 slow 100x", engine="events")["unaffected"] == ()


def test_draws_that_mostly_lose_nothing_say_what_one_of_twenty_takes() -> None:
    words = "half of the draws lose nothing that costs time; one of twenty takes "
    assert words in reason(asked(SLOW, "link rank3 loss 0.02%", engine=None))


def test_packets_go_around_a_slow_link() -> None:
    row = asked(LEAVES, "link leaf1>spine0 rate 50%", **GATHER, size=4 << 20)
    assert "ib packets take the least loaded of several paths: 475 KiB cross leaf1 > spine0, 516 KiB" in reason(row)


def test_each_line_of_several_is_judged_alone() -> None:
    lines = ("link rank3 rate 50%", "link rank1 ber 1e-5", "rank 3 slow 2x")
    row = asked(SLOW, *lines)
    assert [each["fault"] for each in row["unaffected"]] == list(lines[1:])
    assert row["time_us"] > 1.9 * row["healthy_us"]


def test_what_nobody_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaffected, "REASONS", ())
    assert reason(asked(SLOW, "link rank3 ber 1e-5")) == "no effect on the time; not known why"


def test_another_job_that_changes_nothing_says_why() -> None:
    top = "switch:8,rate=1Gb/s,transport=roce"
    here, there = {"group": range(4)}, "all-reduce 1MiB on 4-7 by ring"
    assert reason(asked(top, beside=there, **here)) == "it shares no link with this program"
    longer = asked(top, beside="all-reduce 1MiB on 0-3 by ring", **here)
    assert longer["time_us"] > 1.5 * longer["alone_us"]
    assert longer["unaffected"] == ()


@pytest.mark.parametrize("engine", ["events", "flows", "packets", None])
def test_outages_last_as_long_as_the_answer(engine: str | None) -> None:
    """20 s at 10 Mb/s meet ten outages of 100 ms; only those of the first second were laid out once."""
    top = "switch:4,rate=10Mb/s,transport=tcp-reno"
    row = asked(top, "link rank3 flap 100ms every 2s", size=16 << 20, engine=engine)
    assert row["time_us"] >= row["healthy_us"] + 8 * 100_000
    assert row["worst_us"] >= row["time_us"]


def test_an_outage_that_comes_later_counts_at_the_worst_moment() -> None:
    """The first outage is drawn at 8 s; a run that begins then waits for its end."""
    row = asked(SLOW, "link rank3 flap 1s every 10s", engine="events")
    assert row["time_us"] == row["healthy_us"]
    assert row["worst_us"] == pytest.approx(1e6 + row["time_us"], rel=1e-3)
    assert row["worst_start_s"] > 1


def test_a_moment_that_ends_the_job_is_an_answer_and_a_fault_that_ends_it_is_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["simulate", "all-reduce", "--fabric", SLOW.replace("tcp-reno", "roce"), "--engine", "packets"]
    sizes = ["-b", "1M", "-e", "1M"]
    assert main([*words, *sizes, "--fault", "link rank3 dead at 1s"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "'link rank3 dead at 1s' changes nothing: it begins at 1 s, the collective ends after 12.91 ms" in out
    assert "1 MiB: begun 1 s later, the job ends: roce gives up after 7 retries" in out
    assert main([*words, *sizes, "--fault", "link rank3 dead at 1ms"]) == EXIT_INFEASIBLE
    out = " ".join(capsys.readouterr().out.split())
    assert "ring at 1 MiB: the job ends after" in out
    assert "roce gives up after 7 retries (rank2 to rank3)" in out
    assert "without faults 12,906 us" in out


def test_the_answer_for_machines_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "all-reduce", "--fabric", SLOW, "-b", "1M", "-e", "2M", "--fault", "link rank3 ber 1e-5"]
    assert main([*words, "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        assert row["time_us"] == row["healthy_us"]
        assert set(row["unaffected"][0]) == {"fault", "why", "more_us"}
    assert main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "they change none of these times" in out
    assert "2 MiB: 'link rank3 ber 1e-5' changes nothing: forward error correction mends" in out


def _table() -> Any:
    loader = SourceFileLoader("fault_table", str(ROOT / "benchmarks" / "fault_table.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


TABLE = _table()


@pytest.mark.parametrize("transport", ["tcp-cubic", "ib"])
@pytest.mark.parametrize("fault", ["ber 1e-4", "buffer 16 KiB", "rank 2x slower", "ecmp unlucky", "dead"])
def test_some_of_the_table_is_neither_faster_nor_silent(fault: str, transport: str) -> None:
    told = TABLE.judged("switch", fault, transport)
    assert told.broken == ""
    assert told.said
    assert told.ratio is None or told.ratio >= 1


@pytest.mark.once  # minutes, and packets are the same by the twin
@pytest.mark.slow
@pytest.mark.sampled(20)
@pytest.mark.parametrize("transport", PROTOCOLS)
@pytest.mark.parametrize("fault", TABLE.FAULTS)
@pytest.mark.parametrize("name", TABLE.FABRICS)
def test_the_whole_table_is_neither_faster_nor_silent(name: str, fault: str, transport: str) -> None:
    told = TABLE.judged(name, fault, transport)
    assert told.broken == "", told.short()
