"""A switch that adds beside rings, the same ranks in turns on links of a known rate: python benchmarks/bench_switch.py

Namespaces joined by shaped links; the switches of the fabric run ``ringwright switch``. Times are the best and the median of some
rounds, beside what the wire alone needs and the bar. The ratio is to gloo's ring. Where cores and not the wire were the limit,
no verdict is given: lower the rates, or take a quieter machine. Loss is made in the sockets of workers and switches, by the
kernel: rings do not have it. ``predicted`` is the median of packets through the slots in the simulator, ``off`` how far the
measured median is from it: TOLERANCE at the most, which was fixed before anything was measured. --predict prints what is
predicted alone.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from ringwright.errors import RingwrightError
from ringwright.fabrics import fabric
from ringwright.studies.bench import BenchSpec, bench
from ringwright.studies.bench.by_slots import median_s, pool_of
from ringwright.studies.bench.switched import terms

SLOTS = 64
FRAME_BYTES = 1024 + 8 + 2 + 8 + 8 + 20 + 14  # values, header, exponent, token; UDP, IPv4, Ethernet


@dataclass(frozen=True)
class SwitchCase:
    """One line: ``bar_s`` is what the best round must keep to."""

    name: str
    fabric: str
    ranks: int
    size_bytes: int
    rate_bits: float
    algorithm: str
    bar_s: float | None = None


TOLERANCE = 0.07  # of the measured median, where the wire was the limit
FOUR, EIGHT = "switch:4,rate=100Mb/s", "leaf-spine:8,spines=1,rate=50Mb/s"
CASES = (
    SwitchCase("one level", FOUR, 4, 5_000_000, 100e6, "switchml", 0.46),
    SwitchCase("int8", FOUR, 4, 5_000_000, 100e6, "switchml:codec=int8", 0.13),
    SwitchCase("loss 0.1 %", FOUR, 4, 5_000_000, 100e6, "switchml:loss=0.001", 0.48),
    SwitchCase("loss 1 %", FOUR, 4, 5_000_000, 100e6, "switchml:loss=0.01", 0.65),
    SwitchCase("two levels", EIGHT, 8, 2_500_000, 50e6, "switchml", 0.46),
    SwitchCase("16 slots", FOUR, 4, 5_000_000, 100e6, "switchml:slots=16"),
    SwitchCase("32 slots, 1 %", FOUR, 4, 5_000_000, 100e6, "switchml:slots=32:loss=0.01"),
    SwitchCase("50 Mb/s", "switch:4,rate=50Mb/s", 4, 2_500_000, 50e6, "switchml"),
    SwitchCase("two levels, 1 %", EIGHT, 8, 2_500_000, 50e6, "switchml:loss=0.01"),
)


def main() -> int:
    """Print a line for each case; 1 where the wire was the limit and a bar was missed, or a sum was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names, such as int8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the bytes, no bars")
    parser.add_argument("--predict", action="store_true", help="what the simulator says, without measuring")
    given = parser.parse_args()
    if given.predict:
        for case in CASES:
            print(f"{case.name:16}{_predicted_s(case):9.3f} s", flush=True)
        return 0
    heads = ("wire s", "best s", "median", "predicted", "off", "bar s", "gloo", "ring", "to gloo", "wrong")
    print(f"{'case':16}" + "".join(f"{head:>9}" for head in heads) + "  verdict", flush=True)
    missed = False
    for case in CASES:
        if given.only in case.name:
            missed |= _line(case, given.rounds, quick=given.quick)
    return int(missed)


def _line(case: SwitchCase, rounds: int, *, quick: bool) -> bool:
    """Print one case; return whether it missed its bar."""
    size = case.size_bytes // 10 if quick else case.size_bytes
    question = BenchSpec(
        "all-reduce",
        case.ranks,
        [size],
        ("gloo", "ringwright"),
        ("ring", case.algorithm),
        rounds=rounds,
        warmup=1,
        lab=case.fabric,
        timeout_s=120,
    )
    try:
        answer = bench(question)
    except RingwrightError as error:
        print(f"{case.name:16}  {error.what.splitlines()[0]}", flush=True)
        return True
    rows = {(row["backend"], row["algorithm"]): row for row in answer["rows"]}
    ours, ring = rows["ringwright", case.algorithm], rows["ringwright", "ring"]
    gloo = rows.get(("gloo", "ring"))
    best_s = ours["min_us"] / 1e6
    theirs_s = gloo["time_us"] / 1e6 if gloo else float("nan")
    middle_s, predicted_s = ours["time_us"] / 1e6, (ours["predicted_us"] or float("nan")) / 1e6
    off = middle_s / predicted_s - 1
    verdict, is_missed = _verdict(answer, best_s, case.bar_s, off, quick=quick)
    bar_s = float("nan") if case.bar_s is None else case.bar_s
    figures = (_wire_s(case, size), best_s, middle_s, predicted_s, off, bar_s, theirs_s, ring["time_us"] / 1e6)
    numbers = "".join(f"{figure:9.3f}" for figure in figures)
    print(f"{case.name:16}{numbers}{middle_s / theirs_s:9.2f}{ours['wrong']:9d}  {verdict}", flush=True)
    return is_missed or ours["wrong"] > 0


def _predicted_s(case: SwitchCase) -> float:
    """Return the seconds of packets through the slots of the case's switches."""
    question = BenchSpec("all-reduce", case.ranks, [case.size_bytes], algorithms=[case.algorithm], lab=case.fabric)
    asked = terms(question, case.algorithm)
    return median_s(pool_of(asked, fabric(case.fabric), case.size_bytes, question.dtype, asked.loss))


def _wire_s(case: SwitchCase, size: int) -> float:
    """Return how long the frames need at the link's rate: those of values, and the round of exponents before."""
    elements = 1024 if "int8" in case.algorithm else 256
    chunks = -(-size // 4 // elements)
    return (chunks + min(SLOTS, chunks)) * FRAME_BYTES * 8 / case.rate_bits


def _verdict(
    answer: dict[str, Any], best_s: float, bar_s: float | None, off: float, *, quick: bool
) -> tuple[str, bool]:
    """Return a word, and whether the bar or the prediction was missed; none where the wire was not the limit."""
    limit = answer["verdict"]["limit"]
    if quick or limit != "wire":
        return ("quick" if quick else f"none: {limit} was the limit"), False
    if not abs(off) <= TOLERANCE:
        return f"off by {off:+.1%}", True
    return ("kept", False) if bar_s is None or best_s <= bar_s else ("missed", True)


if __name__ == "__main__":
    sys.exit(main())
