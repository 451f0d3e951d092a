"""Another job on the same fabric: closed forms of shared links, never faster than alone, and what is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from ringwright.calls.other_jobs import programs
from ringwright.cli import main
from ringwright.engines import background_programs, events, flows
from ringwright.engines.background_programs import alone_and_beside
from ringwright.engines.choose import simulate
from ringwright.engines.flat import flatten
from ringwright.engines.repetitions import repeated
from ringwright.engines.switch_slots import machines
from ringwright.fabrics import fabric
from ringwright.fabrics._congestion import congestion
from ringwright.fabrics.faults import apply, effects
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.workload import Mesh

MIB = 1 << 20


def program(op: str, group: Any, size_bytes: int, by: str, on: Any) -> Any:
    _, make, knobs = algorithm(by)
    return make(Collective(op, tuple(group), size_bytes), on, **knobs)


def meanwhile(*asked: Any, **options: Any) -> Any:
    """The run beside others, of the two that the engine gives."""
    return alone_and_beside(*asked, **options)[1]


def send(src: int, dst: int, size_bytes: int, on: Any) -> Any:
    return program("send-recv", (src, dst), size_bytes, "nccl-2-4", on)


@pytest.mark.parametrize("engine", ["flows", "packets"])
def test_two_equal_flows_over_one_link_take_twice_the_time(engine: str) -> None:
    top = fabric("switch:4,rate=1GB/s,latency_s=1us")
    mine, other = send(0, 1, 4 * MIB, top), send(0, 2, 4 * MIB, top)
    alone = simulate(mine, top, engine).time_s
    both = meanwhile(mine, [other], top, engine).time_s
    assert both / alone == pytest.approx(2.0, rel=0.02)


def test_two_jobs_between_the_same_ranks_have_a_connection_each() -> None:
    """In one connection what came first would be first, and the other job in nobody's way."""
    top = fabric("switch:4,rate=1GB/s,latency_s=1us")
    mine, other = send(0, 1, 4 * MIB, top), send(0, 1, 4 * MIB, top)
    alone = simulate(mine, top, "packets").time_s
    assert meanwhile(mine, [other], top, "packets").time_s / alone == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("others", [1, 2, 3])
def test_a_link_is_shared_fairly_by_as_many_as_use_it(others: int) -> None:
    top = fabric("switch:8,rate=1GB/s,latency_s=1us")
    mine = send(0, 1, 16 * MIB, top)
    beside_it = [send(0, 2 + at, 64 * MIB, top) for at in range(others)]
    alone = simulate(mine, top, "flows").time_s
    assert meanwhile(mine, beside_it, top).time_s / alone == pytest.approx(1 + others, rel=1e-3)


def test_a_shorter_job_repeats_until_the_longer_is_done() -> None:
    """A neighbour of a hundredth of the size takes half of the link again and again, not once."""
    top = fabric("switch:4,rate=1GB/s,latency_s=10ns")
    mine, other = send(0, 1, 64 * MIB, top), send(0, 2, 64 * MIB // 100, top)
    alone = simulate(mine, top, "flows").time_s
    run = meanwhile(mine, [other], top)
    assert run.time_s / alone == pytest.approx(2.0, rel=0.01)
    assert not any("lower bound" in each for each in run.left_out)


@pytest.mark.once
def test_what_shares_nothing_is_not_slowed() -> None:
    top = fabric("switch:8,rate=1GB/s")
    mine = program("all-reduce", range(4), 8 * MIB, "ring", top)
    other = program("all-to-all", range(4, 8), 8 * MIB, "pairwise", top)
    for engine in ("flows", "events", "packets"):
        run = meanwhile(mine, [other], top, engine)
        assert run.time_ps == simulate(mine, top, engine, fold_symmetry=False).time_ps
        assert run.flat is not None
        assert len(run.start_ps) == run.flat.n_messages


@pytest.mark.parametrize("seed", range(12))
def test_no_neighbour_makes_anything_faster(seed: int) -> None:
    rng = random.Random(seed)
    top = fabric(rng.choice(["switch:8", "ring:8", "leaf-spine:8,per_leaf=4,spines=2", "torus:2x4", "dgx-h100:2"]))
    ranks = list(range(top.n_ranks))

    def drawn() -> Any:
        group = sorted(rng.sample(ranks, rng.choice([2, 4, 8])))
        op, by = rng.choice([("all-reduce", "ring"), ("all-gather", "ring"), ("all-to-all", "pairwise")])
        return program(op, group, rng.choice([4096, MIB]), by, top)  # fmt: skip

    mine, others = drawn(), [drawn() for _ in range(rng.choice([1, 2]))]
    engine = rng.choice(["flows", "events"])
    run = meanwhile(mine, others, top, engine)
    alone = simulate(mine, top, engine, fold_symmetry=False)
    assert run.time_ps >= alone.time_ps
    assert run.time_ps == run.end_ps.max()
    assert (run.end_ps >= run.start_ps).all()


def test_an_order_that_helps_by_chance_is_not_a_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once beside it, this neighbour delays messages so that others meet less traffic: 0.6 % faster, which nobody may count on."""
    top = fabric("leaf-spine:8,per_leaf=2,spines=2,routing=ecmp")
    mine = program("all-to-all", (0, 2, 4, 5, 6, 7), MIB, "pairwise", top)
    other = program("all-to-all", range(6), 4096, "pairwise", top)
    monkeypatch.setattr(background_programs, "MOST_MESSAGES", 0)  # no second repetition
    alone = simulate(mine, top, "flows", fold_symmetry=False).time_ps
    assert meanwhile(mine, [other], top).time_ps == alone


@pytest.mark.parametrize("by", ["nvls", "nccl-2-4"])
def test_sums_in_the_network_stay_streams_beside_others(by: str) -> None:
    """What a switch adds is one flow over a tree of links, with and without another job; a second one on it takes a part."""
    top = fabric("dgx-h100:2,sharp=true")
    here, there = (program("all-reduce", range(first, first + 8), 64 * MIB, by, top) for first in (0, 8))
    alone = meanwhile(here, [], top)
    assert meanwhile(here, [there], top).time_ps == alone.time_ps
    assert meanwhile(here, [here], top).time_ps > 1.5 * alone.time_ps


def test_siblings_are_part_of_the_job() -> None:
    top = fabric("switch:4,rate=1GB/s,latency_s=10ns")
    mine, sibling, other = (send(0, dst, 16 * MIB, top) for dst in (1, 2, 3))
    alone = simulate(mine, top, "flows").time_s
    both = meanwhile(mine, [], top, siblings=[sibling])
    assert both.time_s / alone == pytest.approx(2.0, rel=1e-3)
    assert meanwhile(mine, [other], top, siblings=[sibling]).time_s / alone == pytest.approx(3.0, rel=1e-3)


@pytest.mark.once
def test_groups_that_meet_the_other_job_are_not_like_those_that_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    """The neighbour is on the NVLinks of the first host: tensor parallelism there is slower than on the second."""
    on = fabric("dgx-h100:2")
    job = ("--model", "resnet-18", "--gpus", "16", "--fabric", "dgx-h100:2")
    other = "all-reduce 64MiB on 0-7 by nccl-2-4"
    mesh = Mesh((("dp", 2), ("tp", 8)))
    costs = FabricCosts(on, mesh, others=tuple(programs([congestion(other, 16)], on)))
    here, there = (
        costs.stages("all-reduce", 64 * MIB, tuple(range(first, first + 8)), "tp")[0].wire_s for first in (0, 8)
    )
    assert there == FabricCosts(on, mesh).stages("all-reduce", 64 * MIB, tuple(range(8)), "tp")[0].wire_s
    assert here > 1.5 * there
    row = asked(capsys, *job, "--beside", other)["rows"][0]
    assert (row["simulated_ranks"], row["folded"]) == (16, False)


@pytest.mark.parametrize("engine", [events, flows])
@pytest.mark.parametrize("by", ["ring", "recursive-doubling"])
def test_repetitions_follow_each_other(engine: Any, by: str) -> None:
    """k repetitions take k times one, and each has the times of the first, shifted."""
    top = fabric("switch:4,rate=1GB/s")
    one = program("all-reduce", range(4), MIB, by, top)
    (made,) = machines([one], top, "pipelined")
    graph, carrying = flatten(one, made), made.carrying(one)
    single = engine.run(graph, carrying)
    for count in (1, 2, 5):
        run = engine.run(repeated(graph, count), carrying)
        starts = single.start_ps[None, : graph.n_messages] + single.time_ps * np.arange(count)[:, None]
        assert run.time_ps == count * single.time_ps
        assert (run.start_ps[: count * graph.n_messages] == starts.ravel()).all()


def test_a_neighbour_that_cannot_be_followed_to_the_end_makes_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    top = fabric("switch:4,rate=1GB/s,latency_s=10ns")
    mine, other = send(0, 1, 64 * MIB, top), send(0, 2, MIB, top)
    whole = meanwhile(mine, [other], top)
    monkeypatch.setattr(background_programs, "MOST_MESSAGES", 4)
    run = meanwhile(mine, [other], top)
    assert any("repetitions, so the time is a lower bound" in each for each in run.left_out)
    assert simulate(mine, top, "flows").time_ps < run.time_ps < whole.time_ps


def test_an_engine_without_messages_declines() -> None:
    top = fabric("switch:4")
    with pytest.raises(DeclinedError, match="one program alone"):
        meanwhile(send(0, 1, MIB, top), [send(0, 2, MIB, top)], top, "closed-form")


def test_the_worst_hash_puts_all_flows_of_a_leaf_on_one_link() -> None:
    """Four flows from one leaf to another: by the target each has a spine of its own, by the worst draw all share one."""
    top = fabric("leaf-spine:8,per_leaf=4,spines=4,rate=1GB/s")
    shift = program("all-to-all", range(8), 64 * MIB, "pairwise", top)
    times = [simulate(shift, each, "flows").time_s for each in (top, apply(top, ["ecmp unlucky"]))]
    assert times[1] > 2 * times[0]
    pair = [send(at, 4 + at, 8 * MIB, top) for at in range(4)]
    shared = apply(top, ["ecmp unlucky"])
    slowed = meanwhile(pair[0], pair[1:], shared).time_s / simulate(pair[0], shared, "flows").time_s
    assert slowed == pytest.approx(4.0, rel=5e-3)  # latency is not shared
    assert meanwhile(pair[0], pair[1:], top).time_ps == simulate(pair[0], top, "flows").time_ps


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("spelling", ["leaf-spine:16,per_leaf=4,spines=4", "fat-tree:16", "dgx-h100:4,per_leaf=2"])
def test_no_draw_loads_a_link_more_than_the_worst(spelling: str) -> None:
    """Times need not follow to the last percent: messages that wait for others may come in a better order by chance."""
    worst = apply(fabric(f"{spelling},routing=ecmp"), ["ecmp unlucky"])
    machines_ = [worst, *(fabric(f"{spelling},routing=ecmp,seed={seed}") for seed in range(5))]
    runs = [
        simulate(program("all-to-all", range(on.n_ranks), 16 * MIB, "pairwise", on), on, "flows") for on in machines_
    ]
    busiest = [max(size for _, _, size in run.load()) for run in runs]
    assert busiest[0] == max(busiest)
    assert runs[0].time_s >= 0.95 * max(run.time_s for run in runs)


@pytest.mark.parametrize(
    ("spelling", "line", "said"),
    [
        ("switch:8", "ecmp unlucky", "no flow of switch:8 has several routes"),
        ("torus:4x4", "ecmp unlucky", "no flow of torus:4x4 has several routes"),
        ("leaf-spine:64", "ecmp unlucky at 2ms", "all that befalls ecmp"),
        ("leaf-spine:64", "ecmp lucky", "all that befalls ecmp"),
        ("leaf-spine:64", "congestion from all-reduce 1MiB", "traffic of another job changes no link"),
    ],
)
def test_what_a_fabric_cannot_have_is_refused(spelling: str, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        apply(fabric(spelling), [line])


def test_the_lottery_of_other_faults_stays_the_same() -> None:
    top = fabric("leaf-spine:64")
    drawn = apply(top, ["", "link random:2 rate 50%"]).faults
    assert apply(top, ["ecmp unlucky", "link random:2 rate 50%"]).faults == drawn
    with pytest.raises(UsageError, match="two ranks have one path"):
        effects(top, ["ecmp unlucky"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("congestion all-to-all 1MiB", "'from' is missing"),
        ("congestion from all-to-all", "a collective and its size are missing"),
        ("all-to-al 1MiB", "'all-to-al' is no collective that carries data: a whole model"),
        ("llama3-8b tp8", "a whole model beside a collective is not simulated"),
        ("barrier 1MiB", "'barrier' is no collective that carries data"),
        ("all-to-all much", "'much' is not a size"),
        ("all-to-all 0", "moves nothing"),
        ("all-to-all 1MiB on 0-9", "names no ranks of 0 to 7"),
        ("all-to-all 1MiB on 3-1", "names no ranks of 0 to 7"),
        ("all-to-all 1MiB on one", "'one' is no rank"),
        ("all-to-all 1MiB on 1", "one rank alone"),
        ("all-to-all 1MiB on 1,1-2", "named twice"),
        ("all-to-all 1MiB on 0-3 on 4-7", "'on 4-7' is not understood"),
        ("all-to-all 1MiB at 2ms", "'at 2ms' is not understood"),
        ("all-to-all 1MiB by", "'by' is not understood"),
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        congestion(line, 8)


def test_a_line_is_read() -> None:
    told = congestion("congestion from all-to-all 64MiB on 0-2,6 by pairwise  # the neighbour", 8)
    assert (told.op, told.size_bytes, told.group, told.algorithm) == ("all-to-all", 64 * MIB, (0, 1, 2, 6), "pairwise")
    assert congestion("all-reduce 1G", 8).group is None


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["simulate", *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_command_line_tells_both_times(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("send-recv", "--fabric", "switch:4,rate=10GB/s", "--ranks", "0,1", "-b", "64M", "-e", "64M")
    other = "send-recv 64MiB on 0,2"
    answers = [asked(capsys, *words, "--beside", other), asked(capsys, *words, "--fault", f"congestion from {other}")]
    alone = asked(capsys, *words, "--engine", "flows")["rows"][0]["time_us"]
    for answer in answers:
        row = answer["rows"][0]
        assert row["time_us"] == answers[0]["rows"][0]["time_us"] == pytest.approx(2 * alone, rel=1e-3)
        assert row["alone_us"] == alone
        assert (row["engine"], row["time_us_p05"], row["outside"]) == ("flows", None, ["fabric", "beside"])
    assert answers[0]["beside"] == answers[1]["beside"] == [other]
    assert asked(capsys, *words)["rows"][0]["alone_us"] is None
    assert main(["simulate", *words, "--beside", other]) == 0
    shown = capsys.readouterr().out
    assert "beside: send-recv 64MiB on 0,2, again and again" in shown
    assert "alone us" in shown
    assert "nothing was measured beside another job" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sample", "--fabric", "switch:16", "--beside", "all-reduce 1M"), "a recorded job beside"),
        (("--sample", "--fabric", "switch:16", "--fault", "congestion from all-reduce 1M"), "a recorded job beside"),
        (("--model", "resnet50", "--gpus", "8", "--beside", "all-reduce 1M"), "no fabric is named"),
        (("--model", "resnet50", "--gpus", "512", "--fabric", "switch:512", "--beside", "all-reduce 1M"), "512 ranks"),
        (("all-reduce", "--fabric", "switch:8", "--beside", "all-reduce 1M", "--arrivals", "late:3=2ms"), "not both"),
        (("all-reduce", "--fabric", "switch:8", "--beside", "all-reduce 1M by rinq"), "rinq"),
    ],
)
def test_what_is_not_simulated_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["simulate", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_step_beside_another_job_is_as_long_as_its_operations(capsys: pytest.CaptureFixture[str]) -> None:
    """The other job, of as many flows, halves the links: what is exposed takes twice as long, compute stays; ranks it shares nothing with stay."""
    words = ("--model", "resnet50", "--gpus", "4", "--fabric", "switch:8,rate=1GB/s")
    alone = asked(capsys, *words)["rows"][0]
    met = asked(capsys, *words, "--beside", "all-reduce 64MiB on 0-3 by nccl-2-4")
    row = met["rows"][0]
    assert row["compute_us"] == pytest.approx(alone["compute_us"], rel=1e-9)
    assert row["exposed_comm_us"] == pytest.approx(2 * alone["exposed_comm_us"], rel=0.1)
    assert met["beside"] == ["all-reduce 64MiB on 0-3 by nccl-2-4"]
    assert any(each.startswith("beside: all-reduce 64MiB on 0-3 by nccl-2-4, again") for each in met["assumptions"])
    elsewhere = asked(capsys, *words, "--fault", "congestion from all-reduce 64MiB on 4-7 by nccl-2-4")["rows"][0]
    assert elsewhere["step_us"] == pytest.approx(alone["step_us"], rel=1e-9)


@pytest.mark.once
def test_a_step_says_where_its_operations_are_lower_bounds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--model", "resnet50", "--gpus", "4", "--fabric", "switch:8,rate=1GB/s", "--beside", "send-recv 64 on 0,1")
    monkeypatch.setattr(background_programs, "MOST_MESSAGES", 1000)
    assert any("time is a lower bound" in each for each in asked(capsys, *words)["assumptions"])


def test_bursts_are_those_of_the_collective_that_was_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("all-gather", "--fabric", "switch:8", "--ranks", "0-3", "--algorithm", "ring", "-b", "8M", "-e", "8M")
    bursts = asked(capsys, *words, "--beside", "all-to-all 8MiB on 0-7")["bursts"]
    assert bursts["bytes"] == 4 * 6 * MIB
    assert {row["nic"] for row in bursts["nics"]} == {f"rank {rank}" for rank in range(4)}
