"""How often advice was right: pairs of recordings, jobs in which nothing gains, and planted causes, each judged and counted.

Seeds below ``SEALED`` are for fitting and looking; those from it on are for the figures that are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypedDict, final

from ringwright.advise.advise import AdviceSpec, advise
from ringwright.advise.backtest import BackTest, of_halves, of_pair
from ringwright.advise.document import CHANGES, Advice
from ringwright.advise.situation import of_recording
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.formats.sources import read
from ringwright.ground.errors import RingwrightError
from ringwright_lab.testing import drawn_pairs, live_pairs, planted_causes

if TYPE_CHECKING:
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace
    from ringwright_lab.testing.live_pairs import LivePairs

SCHEMA = "ringwright.back-tests/1"
SEALED = 700_000
TURNS = (
    "buckets",
    "policy",
    "buckets",
    "repair",
    "buckets",
    "links",
    "policy",
    "algorithm",
)  # kinds of drawn pairs, in turn
LAYERS = ("repair", "nccl", "ddp", "fsdp", "policy")
SECONDS = float("inf")  # of one search: none is stopped by a clock, however many work beside it
MENDED_BY = {  # cause -> layers of the change that mends it
    "small-buckets": ("ddp",),
    "sockets": ("repair",),
    "slow-nic": ("repair",),
    "wrong-order": ("policy", "ddp"),
    "straggler": ("repair",),
}
NAMED = ("slow-nic", "straggler")  # causes of which the ranks must be named
GAINS = 0.05  # of a step, from which on advice should tell


@final
class JudgedPair(TypedDict):
    """A pair: its kind and seed, whether real ranks ran it, the interval, what was measured, and the gain without noise."""

    kind: str
    seed: int
    is_real: bool
    change: str
    gain_p05: float | None
    gain_p50: float | None
    gain_p95: float | None
    measured_gain: float
    true_gain: float | None
    is_inside: bool | None
    is_told: bool
    why: str


@final
class JudgedCause(TypedDict):
    """A recording with a cause ("": nothing gains): what was told first, and whether that is right."""

    cause: str
    seed: int
    is_real: bool
    loss: float
    told: str
    is_right: bool
    is_inside: bool | None
    gain_p05: float | None
    gain_p95: float | None


class BackTestFigures(TypedDict):
    """The counts; shares are of those that were judged. ``width`` is of intervals of gains, in shares of a step."""

    pairs: int
    real: int
    covered: float | None
    covered_real: float | None
    covered_changes: float | None
    width: float | None
    width_changes: float | None
    gaining: int
    cannot_tell: float | None
    nulls: int
    false_promises: int
    planted: int
    cause_first: float | None
    planted_inside: float | None


class BackTests(TypedDict):
    """All of a campaign."""

    schema: str
    first_seed: int
    figures: BackTestFigures
    by_kind: dict[str, BackTestFigures]
    pairs: list[JudgedPair]
    causes: list[JudgedCause]


@dataclass(frozen=True)
class BackTestSizes:
    """How many: drawn pairs, jobs of real ranks (each with halves and three changes), planted causes, of which real, nulls."""

    drawn: int = 140
    live: int = 15
    planted: int = 50
    live_planted: int = 10
    nulls: int = 20


Told = Callable[[JudgedPair | JudgedCause], None]


def campaign(
    sizes: BackTestSizes,
    first_seed: int = SEALED,
    told: Told | None = None,
    real: Sequence[Path] = (),
    executor: Chosen | FanOut = None,
) -> BackTests:
    """Return a campaign; ``real`` are recordings whose halves are judged besides. Real ranks need PyTorch, and run here.

    ``executor`` judges what is drawn.
    """
    tell = told or (lambda _: None)
    pairs: list[JudgedPair] = []
    causes: list[JudgedCause] = []
    for judged in _run(sizes, first_seed, real):
        tell(judged)
        if "cause" in judged:
            causes.append(judged)
        else:
            pairs.append(judged)
    drawn = [(TURNS[at % len(TURNS)], first_seed + at) for at in range(sizes.drawn)]
    names = tuple(planted_causes.CAUSES)
    put = [(names[at % len(names)], first_seed + at) for at in range(sizes.planted - sizes.live_planted)]
    put += [("", first_seed + at) for at in range(sizes.nulls)]
    with fan_out(executor) as fan:
        pairs += fan.map(drawn_pair_judged, drawn, each=lambda _, judged: tell(judged))
        causes += fan.map(drawn_cause_judged, put, each=lambda _, judged: tell(judged))
    return counted(pairs, causes, first_seed)


def counted(pairs: list[JudgedPair], causes: list[JudgedCause], first_seed: int) -> BackTests:
    """Return the object of schema ``ringwright.back-tests/1``."""
    kinds = dict.fromkeys([_kind(each) for each in pairs] + [each["cause"] or "null" for each in causes])
    return {
        "schema": SCHEMA,
        "first_seed": first_seed,
        "figures": figures(pairs, causes),
        "by_kind": {
            kind: figures(
                [each for each in pairs if _kind(each) == kind],
                [each for each in causes if (each["cause"] or "null") == kind],
            )
            for kind in kinds
        },
        "pairs": pairs,
        "causes": causes,
    }


def _kind(each: JudgedPair) -> str:
    return f"{each['kind']}, real" if each["is_real"] else each["kind"]


def _run(sizes: BackTestSizes, first_seed: int, real: Sequence[Path]) -> Iterator[JudgedPair | JudgedCause]:
    for path in real:
        made = of_halves(read(str(path)))
        yield _pair(made, f"halves of {path.name}", first_seed, is_real=True)
    yield from _live(sizes, first_seed)


def drawn_pair_judged(kind: str, seed: int) -> JudgedPair:
    """Return a pair of simulated jobs, judged."""
    drawn = drawn_pairs.pair(kind, seed)
    made = of_pair(drawn.before, drawn.after, drawn.change, drawn.machine)
    return _pair(made, drawn.kind, drawn.seed, is_real=False, true_gain=drawn.true_gain)


def _live(sizes: BackTestSizes, first_seed: int) -> Iterator[JudgedPair | JudgedCause]:
    plans = [live_pairs.planned(first_seed + at) for at in range(sizes.live)]
    causes = ("wrong-order", "straggler")
    plans += [live_pairs.planted(causes[at % 2], first_seed + at) for at in range(sizes.live_planted)]
    for plan, (before, *after) in zip(plans, live_pairs.record(plans) if plans else [], strict=True):
        if plan.cause:
            yield _live_cause(plan, before, after[0])
            continue
        yield _pair(of_halves(before), "halves", plan.seed, is_real=True)
        for change, other in zip(plan.changes, after, strict=True):
            yield _pair(of_pair(before, other, change), "policies", plan.seed, is_real=True)


def _pair(made: BackTest, kind: str, seed: int, *, is_real: bool, true_gain: float | None = None) -> JudgedPair:
    return {
        "kind": kind,
        "seed": seed,
        "is_real": is_real,
        "change": made.change,
        "gain_p05": made.gain_p05,
        "gain_p50": made.gain_p50,
        "gain_p95": made.gain_p95,
        "measured_gain": made.measured_gain,
        "true_gain": true_gain,
        "is_inside": made.is_inside,
        "is_told": made.is_told,
        "why": made.why,
    }


def drawn_cause_judged(cause: str, seed: int) -> JudgedCause:
    """Return a simulated recording with a cause put in, or none (""), judged."""
    made = planted_causes.planted(cause, seed)
    return _cause(cause, seed, made.trace, made.ranks, made.loss, made.machine, is_real=False)


def _live_cause(plan: LivePairs, before: Trace, after: Trace) -> JudgedCause:
    loss = of_pair(before, after, "").measured_gain
    return _cause(plan.cause, plan.seed, before, plan.ranks, loss, None, is_real=True)


def _cause(
    cause: str,
    seed: int,
    trace: Trace,
    ranks: Sequence[int],
    loss: float,
    machine: Topology | None,
    *,
    is_real: bool,
) -> JudgedCause:
    try:
        told = advise(of_recording(trace, machine), AdviceSpec(LAYERS, SECONDS, seed % 1000))
    except RingwrightError as error:
        return _as_told(cause, seed, loss, None, error.what, is_right=False, is_real=is_real)
    return _as_told(cause, seed, loss, told, told["why"], is_right=_is_right(cause, ranks, told), is_real=is_real)


def _as_told(
    cause: str, seed: int, loss: float, told: Advice | None, why: str, *, is_right: bool, is_real: bool
) -> JudgedCause:
    first = told["changes"][0] if told and told["changes"] else None
    low, high = (first["adds_p05"], first["adds_p95"]) if first else (None, None)
    inside = low <= loss <= high if cause and low is not None and high is not None else None
    return {
        "cause": cause,
        "seed": seed,
        "is_real": is_real,
        "loss": loss,
        "told": f"{first['layer']}: {first['what']}" if first else why,
        "is_right": is_right,
        "is_inside": inside,
        "gain_p05": low,
        "gain_p95": high,
    }


def _is_right(cause: str, ranks: Sequence[int], told: Advice) -> bool:
    """Whether the change that is told first mends the cause and names its ranks; of none, whether nothing is promised."""
    if not cause:
        return told["verdict"] != CHANGES
    first = told["changes"][0] if told["changes"] else None
    if first is None or first["layer"] not in MENDED_BY[cause]:
        return False
    if cause == "sockets":
        return "socket" in first["what"].lower()
    named = [f"rank {rank}" for rank in ranks] if cause in NAMED else []
    return all(each in f"{first['what']}; {first['where']}" for each in named)


def figures(pairs: Iterable[JudgedPair], causes: Iterable[JudgedCause]) -> BackTestFigures:
    """Return the counts of some of a campaign."""
    pairs, causes = list(pairs), list(causes)
    told = [each for each in pairs if each["is_inside"] is not None]
    changed = [each for each in told if each["change"]]
    gaining = [each for each in pairs if each["change"] and _gain(each) > GAINS]
    nulls = [each for each in causes if not each["cause"]]
    planted = [each for each in causes if each["cause"] and each["loss"] >= planted_causes.LEAST]
    return {
        "pairs": len(pairs),
        "real": sum(each["is_real"] for each in pairs),
        "covered": _share([bool(each["is_inside"]) for each in told]),
        "covered_real": _share([bool(each["is_inside"]) for each in told if each["is_real"]]),
        "covered_changes": _share([bool(each["is_inside"]) for each in changed]),
        "width": _width(told),
        "width_changes": _width(changed),
        "gaining": len(gaining),
        "cannot_tell": _share([not each["is_told"] for each in gaining]),
        "nulls": len(nulls),
        "false_promises": sum(not each["is_right"] for each in nulls),
        "planted": len(planted),
        "cause_first": _share([each["is_right"] for each in planted]),
        "planted_inside": _share([bool(each["is_inside"]) for each in planted if each["is_inside"] is not None]),
    }


def _gain(each: JudgedPair) -> float:
    """Return the gain without noise where it is known, else the measured one."""
    return each["measured_gain"] if each["true_gain"] is None else each["true_gain"]


def _share(listed: Sequence[bool]) -> float | None:
    return sum(listed) / len(listed) if listed else None


def _width(listed: Sequence[JudgedPair]) -> float | None:
    widths = [(each["gain_p95"] or 0.0) - (each["gain_p05"] or 0.0) for each in listed]
    return median(widths) if widths else None
