"""A switch that adds beside rings, the same ranks in turns on links of a known rate: python benchmarks/bench_switch.py

Namespaces joined by shaped links; the switches of the fabric run ``ringwright switch``, and in cases named xdp their kernels add
(root, clang). Each row tells what was measured (best and median of some rounds), what the simulator says of packets through the
slots, and a verdict on all that was fixed before anything was measured: sums are right; the best and the median keep to their
bars; the median is within TOLERANCE of the simulated one; and gloo's ring takes 2 (n-1)/n times as long, within TOLERANCE.

Where cores and not the wire were the limit, a row has no verdict: lower the rates, or take a quieter machine. For the ratio to
gloo's ring such a refusal counts as missed. Loss is made in the sockets of workers and switches, or in the switch's kernel: rings
do not have it. --predict prints what is simulated alone; nothing of it is fitted to a measurement.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError
from ringwright_lab.bench import BenchSpec, bench
from ringwright_lab.bench.by_slots import median_s, pool_of

SLOTS = 64
FRAME_BYTES = 1024 + 8 + 2 + 8 + 8 + 20 + 14  # values, header, exponent, token; UDP, IPv4, Ethernet
TOLERANCE = 0.07
KEPT, MISSED, REFUSED = "kept", "missed", "none"
COLUMNS = ("wire s", "best s", "median", "simulated", "off", "bar s", "gloo", "ring", "ratio", "ideal", "wrong")


@dataclass(frozen=True)
class SwitchCase:
    """One row: the best round keeps to ``bar_s``, the median to ``median_bar_s``; ``has_ratio``: held to gloo's ring."""

    name: str
    fabric: str
    ranks: int
    size_bytes: int
    rate_bits: float
    algorithm: str
    bar_s: float | None = None
    median_bar_s: float | None = None
    has_ratio: bool = False

    @property
    def ideal_ratio(self) -> float:
        """How many times the bytes of a vector a ring sends over each link."""
        return 2 * (self.ranks - 1) / self.ranks


TWO, FOUR, EIGHT = "switch:2,rate=100Mb/s", "switch:4,rate=100Mb/s", "leaf-spine:8,spines=1,rate=50Mb/s"
CASES = (
    SwitchCase("one level", FOUR, 4, 5_000_000, 100e6, "switchml", 0.46, has_ratio=True),
    SwitchCase("one level, xdp", FOUR, 4, 5_000_000, 100e6, "switchml:xdp=true", 0.46, has_ratio=True),
    SwitchCase("two ranks", TWO, 2, 5_000_000, 100e6, "switchml", has_ratio=True),
    SwitchCase("two ranks, xdp", TWO, 2, 5_000_000, 100e6, "switchml:xdp=true", has_ratio=True),
    SwitchCase("int8", FOUR, 4, 5_000_000, 100e6, "switchml:codec=int8", 0.13),
    SwitchCase("int8, xdp", FOUR, 4, 5_000_000, 100e6, "switchml:codec=int8:xdp=true", 0.13),
    SwitchCase("loss 0.1 %", FOUR, 4, 5_000_000, 100e6, "switchml:loss=0.001", 0.48),
    SwitchCase("loss 1 %", FOUR, 4, 5_000_000, 100e6, "switchml:loss=0.01", 0.65),
    SwitchCase("loss 1 %, xdp", FOUR, 4, 5_000_000, 100e6, "switchml:loss=0.01:xdp=true", 0.65),
    SwitchCase("two levels", EIGHT, 8, 2_500_000, 50e6, "switchml", 0.46, 0.52, has_ratio=True),
    SwitchCase("two levels, xdp", EIGHT, 8, 2_500_000, 50e6, "switchml:xdp=true", 0.46, 0.52, has_ratio=True),
    SwitchCase("16 slots", FOUR, 4, 5_000_000, 100e6, "switchml:slots=16"),
    SwitchCase("32 slots, 1 %", FOUR, 4, 5_000_000, 100e6, "switchml:slots=32:loss=0.01"),
    SwitchCase("50 Mb/s", "switch:4,rate=50Mb/s", 4, 2_500_000, 50e6, "switchml"),
    SwitchCase("two levels, 1 %", EIGHT, 8, 2_500_000, 50e6, "switchml:loss=0.01"),
)


def main(argv: list[str] | None = None) -> int:
    """Print a row for each case and how many kept to all; 1 where one missed something, or a sum was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names, such as int8 or xdp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the bytes, no verdicts")
    parser.add_argument("--predict", action="store_true", help="what the simulator says, without measuring")
    given = parser.parse_args(argv)
    chosen = [case for case in CASES if given.only in case.name]
    if given.predict:
        for case in chosen:
            print(f"{case.name:18}{_simulated_s(case):9.3f} s", flush=True)
        return 0
    print(f"{'case':18}" + "".join(f"{head:>10}" for head in COLUMNS) + "  verdict", flush=True)
    words = Counter(_row(case, given.rounds, quick=given.quick) for case in chosen)
    print(
        ", ".join(f"{words[word]} {said}" for word, said in ((KEPT, KEPT), (MISSED, MISSED), (REFUSED, "no verdict")))
    )
    return int(words[MISSED] > 0)


def _question(case: SwitchCase, size: int, rounds: int) -> BenchSpec:
    return BenchSpec(
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


def _row(case: SwitchCase, rounds: int, *, quick: bool) -> str:
    """Measure and print one case; return the verdict's first word."""
    size = case.size_bytes // 10 if quick else case.size_bytes
    try:
        answer = bench(_question(case, size, rounds))
    except RingwrightError as error:
        print(f"{case.name:18}  {MISSED}: {' '.join(error.what.split())}", flush=True)
        return MISSED
    rows = {(row["backend"], row["algorithm"]): row for row in answer["rows"]}
    ours, ring, gloo = rows["ringwright", case.algorithm], rows["ringwright", "ring"], rows.get(("gloo", "ring"))
    best_s, middle_s = ours["min_us"] / 1e6, ours["time_us"] / 1e6
    simulated_s = (ours["predicted_us"] or float("nan")) / 1e6
    theirs_s = gloo["time_us"] / 1e6 if gloo else float("nan")
    off, ratio = middle_s / simulated_s - 1, theirs_s / middle_s
    bar_s = float("nan") if case.bar_s is None else case.bar_s
    figures = (_wire_s(case, size), best_s, middle_s, simulated_s, off, bar_s, theirs_s, ring["time_us"] / 1e6, ratio)
    numbers = "".join(f"{figure:10.3f}" for figure in (*figures, case.ideal_ratio))
    misses = _misses(case, best_s, middle_s, off, ratio)
    word, why = _verdict(case, "quick" if quick else answer["verdict"]["limit"], misses, ours["wrong"])
    print(f"{case.name:18}{numbers}{ours['wrong']:10d}  {word}{why and ': '}{why}", flush=True)
    return word


def _misses(case: SwitchCase, best_s: float, middle_s: float, off: float, ratio: float) -> list[str]:
    """Return what of a case does not keep to what was fixed before."""
    misses = []
    if case.bar_s is not None and best_s > case.bar_s:
        misses.append(f"best above {case.bar_s} s")
    if case.median_bar_s is not None and middle_s > case.median_bar_s:
        misses.append(f"median above {case.median_bar_s} s")
    if not abs(off) <= TOLERANCE:
        misses.append(f"simulated is off by {off:+.1%}")
    if case.has_ratio and not abs(ratio / case.ideal_ratio - 1) <= TOLERANCE:
        misses.append(f"ratio {ratio:.2f}, not {case.ideal_ratio:.2f}")
    return misses


def _verdict(case: SwitchCase, limit: str, misses: list[str], wrong: int) -> tuple[str, str]:
    """Return a word and why: none where the wire was not the limit, which for a ratio is a miss."""
    if wrong:
        return MISSED, f"{wrong} elements are wrong"
    if limit == "quick":
        return REFUSED, "too short"
    if limit != "wire":
        return (MISSED if case.has_ratio else REFUSED), f"{limit} was the limit, so nothing is said of time"
    return (MISSED, "; ".join(misses)) if misses else (KEPT, "")


def _simulated_s(case: SwitchCase) -> float:
    """Return the seconds of packets through the slots of the case's switches."""
    question = _question(case, case.size_bytes, 1)
    asked = question.through_switch[case.algorithm]
    return median_s(pool_of(asked, fabric(case.fabric), case.size_bytes, question.dtype, asked.loss))


def _wire_s(case: SwitchCase, size: int) -> float:
    """Return how long the frames need at the link's rate: those of values, and the round of exponents before."""
    elements = 1024 if "int8" in case.algorithm else 256
    chunks = -(-size // 4 // elements)
    return (chunks + min(SLOTS, chunks)) * FRAME_BYTES * 8 / case.rate_bits


if __name__ == "__main__":
    sys.exit(main())
