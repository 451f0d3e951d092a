"""Rewritten steps on real ranks behind limited links: what was predicted beside what is measured, and whether it holds.

    python benchmarks/lab_decompose.py                     # every question; ends with 1 where one does not hold
    python benchmarks/lab_decompose.py --only loop,halves  # of: loop, halves, levels, split, messages, turns, wait, tiles, grain

Predictions know rates, sizes and times of the work, and nothing of a measured run. Two cores that others use make ranks late:
each question is asked up to three times, and every answer is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ringwright.execute.looped_products import LoopedProduct, measure
from ringwright_lab.judges import halves_in_lab, tile_triggers
from ringwright_lab.judges.in_lab import OF_A_LINK
from ringwright_lab.judges.partitioned import in_lab
from ringwright_lab.network.network import network
from ringwright_lab.papers.figures.collective_einsum_overlap import site_gain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import turns_in_lab

TRIES = 3


@dataclass(frozen=True)
class LabAnswer:
    """What was asked, the gain (times, or a share) predicted and measured, the least that is asked, and how near it must be."""

    what: str
    predicted: float
    measured: float
    least: float
    within: float

    @property
    def holds(self) -> bool:
        """Whether it is at least what is asked, and as near to its prediction as is asked."""
        return self.measured >= self.least and abs(self.measured / self.predicted - 1) <= self.within


def loop() -> Iterator[LabAnswer]:
    """Four ranks at 200 Mb/s, the product as long as the gather; 1.25 times at the least."""
    job = LoopedProduct(ranks=4, rows=256, width=512)
    job = LoopedProduct(ranks=4, rows=256, width=512, product_s=3 * job.block_bytes / (25e6 * OF_A_LINK))
    with tempfile.TemporaryDirectory() as name, network("switch:4,rate=200Mb/s", out=Path(name), force=True) as net:
        for what, row in zip(("looped gather", "looped scatter"), measure(job, net.places), strict=True):
            yield LabAnswer(what, site_gain(1.0, 4), row.speed_up, 1.25, 0.25)


def halves() -> Iterator[LabAnswer]:
    """Ten layers whose sums take four times as long as forward: DeAR against plain overlap; 1.15 times at the least."""
    row = halves_in_lab.measure(halves_in_lab.HalvesQuestion())
    yield LabAnswer("DeAR, gain", row.predicted_gain, row.measured_gain, 0.15, 0.25)


def levels() -> Iterator[LabAnswer]:
    """2 x 2 ranks: a ring passes 1.5 of the bytes between nodes, levels 1."""
    whole, *others = in_lab.levels(rounds=2)
    for row in others:
        crossed = whole.across_bytes / row.across_bytes
        yield LabAnswer(
            row.form, whole.predicted_s / row.predicted_s, whole.measured_s / row.measured_s, crossed * 0.85, 0.25
        )


def split() -> Iterator[LabAnswer]:
    """A sum split 80 to 20 over two networks, within 10 % of their rates together."""
    whole, both = in_lab.split(rounds=2)
    yield LabAnswer("two networks", whole.predicted_s / both.predicted_s, whole.measured_s / both.measured_s, 1.0, 0.1)


def messages() -> Iterator[LabAnswer]:
    """The median wait of messages beside a whole sum, over that beside its blocks."""
    whole, blocks = in_lab.messages(rounds=12)
    yield LabAnswer("messages", whole.predicted_s / blocks.predicted_s, whole.measured_s / blocks.measured_s, 1.0, 0.25)


def turns() -> Iterator[LabAnswer]:
    """Halves of a batch by turns, a block as long as its sum: 1.25 times at the least."""
    step, made = turns_in_lab.halves()
    before, after = _taken(step, made)
    yield LabAnswer(
        "halves by turns", turns_in_lab.seconds(step) / turns_in_lab.seconds(made), before / after, 1.25, 0.25
    )


def wait() -> Iterator[LabAnswer]:
    """Recomputation in a wait: seconds saved, at least 70 % of the lesser of recomputation and wait."""
    in_wait, late, most = turns_in_lab.waits()
    one, other = _taken(in_wait, late)
    predicted = turns_in_lab.seconds(late) - turns_in_lab.seconds(in_wait)
    yield LabAnswer("recomputation in a wait, s", predicted, other - one, 0.7 * most, 0.25)


def tiles() -> Iterator[LabAnswer]:
    """Copies that tiles start, on threads: the share of them that the product hides, four fifths at the least."""
    asked = tile_triggers.TriggeredProduct(tile_s=0.015, copy_s=0.02, tiles=8)
    yield LabAnswer("tile triggers, hidden", 1.0, tile_triggers.measure(asked).hidden, 0.8, 0.2)


def grain() -> Iterator[LabAnswer]:
    """Copies of one tile in place of a block of four: sooner, and a start each."""
    asked = tile_triggers.TriggeredProduct(tiles=4, tile_s=0.03)
    yield _finer("tiles in place of blocks", replace(asked, copy_s=0.05), 1.05)
    yield _finer("tiles, slow to start", replace(asked, copy_s=0.02, start_s=0.04), 0.5)


def _finer(what: str, job: tile_triggers.TriggeredProduct, least: float) -> LabAnswer:
    """Whole blocks over tiles, which each cost a start: predicted by the order of copies alone."""
    block = replace(job, grain=job.tiles)
    predicted = tile_triggers.expected_s(block) / tile_triggers.expected_s(job)
    measured = tile_triggers.measure(block).seconds / tile_triggers.measure(job).seconds
    return LabAnswer(what, predicted, measured, least, 0.1)


def _taken(*steps: turns_in_lab.Workload) -> list[float]:
    with tempfile.TemporaryDirectory() as name:
        return turns_in_lab.measured(Path(name), list(steps))


QUESTIONS: dict[str, Callable[[], Iterator[LabAnswer]]] = {
    each.__name__: each for each in (loop, halves, levels, split, messages, turns, wait, tiles, grain)
}


def main() -> int:
    """Ask the questions; return 1 where an answer does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="questions, comma separated")
    asked = parser.parse_args()
    wrong = 0
    for name in asked.only.split(",") if asked.only else QUESTIONS:
        for turn in range(TRIES):
            answers = list(QUESTIONS[name]())
            for each in answers:
                told = f"{each.measured:.3f} for {each.predicted:.3f} predicted, {each.least:.2f} asked"
                print(f"{each.what:28} {told}: {'holds' if each.holds else 'NOT'} (try {turn + 1})", flush=True)
            if all(each.holds for each in answers):
                break
        else:
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
