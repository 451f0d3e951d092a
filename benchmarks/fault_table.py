"""Every fault with every transport on three fabrics, by packets: times the healthy time, what was met, or why nothing changed.

    python benchmarks/fault_table.py                     # the whole table, one process
    python benchmarks/fault_table.py --only roce,switch  # rows and columns whose names hold one of these words each
    python benchmarks/fault_table.py --markdown          # as it stands in docs/reference/fault-table.md

It ends with 1 where a fault makes a collective faster, or changes nothing without a reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ringwright.calls.asked_faults import AskedFaults
from ringwright.calls.job_ends import JobEnd
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.unaffected import UNKNOWN
from ringwright.calls.without_faults import PER_MILLE
from ringwright.costs.protocols import PROTOCOLS
from ringwright.fabrics import fabric
from ringwright.fabrics._congestion import congestion, is_congestion
from ringwright.ground.documents import read_json
from ringwright.ground.errors import UsageError
from ringwright.reports.calls.simulated import in_words

FASTER = 1 - 1e-9  # of the healthy time, below which a fault has made something faster


@dataclass(frozen=True)
class Asked:
    """A fabric with its collective (0.1 to 2 ms without faults), and what lines of faults are about."""

    spec: str
    op: str
    algorithm: str
    size_bytes: int
    link: str
    switch: str


FABRICS = {
    "switch": Asked("switch:8,rate=10Gb/s", "all-reduce", "ring", 1 << 20, "link rank3", "switch switch"),
    "leaf-spine": Asked(
        "leaf-spine:16,per_leaf=4,spines=2,rate=10Gb/s",
        "all-to-all",
        "direct",
        1 << 20,
        "link leaf1--spine0",
        "switch spine0",
    ),
    "dgx-h100": Asked("dgx-h100:2", "all-reduce", "ring", 4 << 20, "nic node0/nic0", "switch leaf0"),
}
FAULTS = {
    "loss 0.1 %": "{link} loss 0.1%",
    "loss 1 %": "{link} loss 1%",
    "ber 1e-4": "{link} ber 1e-4",
    "ber 1e-3": "{link} ber 1e-3",
    "flap": "{link} flap 50us every 50ms from 40us",
    "dead": "{link} dead at 40us",
    "rate 50 %": "{link} rate 50%",
    "latency +20us": "{link} latency +20us",
    "buffer 16 KiB": "switch * buffer 16KiB",
    "optics": "{link} optics degrade for 200us",
    "rank 2x slower": "rank 3 slow 2x",
    "switch dead": "{switch} dead at 40us",
    "ecmp unlucky": "ecmp unlucky",
    "congestion": "congestion from all-to-all 1MiB",
}


@dataclass(frozen=True)
class Judged:
    """One fault with one transport on one fabric: what is said of it, and whether a law is broken."""

    fabric: str
    fault: str
    transport: str
    said: str
    ratio: float | None
    broken: str = ""

    def short(self) -> str:
        """Return it for a table."""
        return self.said if self.ratio is None else f"{self.ratio:.4g}" + (f": {self.said}" if self.said else "")


def judged(name: str, fault: str, transport: str) -> Judged:
    """Return what the product answers for a fault, judged by two laws: never faster, never silent."""
    asked = FABRICS[name]
    line = FAULTS[fault].format(link=asked.link, switch=asked.switch)
    try:
        row = _row(asked, transport, line)
    except UsageError as error:
        return Judged(name, fault, transport, f"refused: {error.what}", None)
    if row["ends"]:
        return Judged(name, fault, transport, in_words(read_json(JobEnd, row["ends"])), None)
    healthy_us = row["alone_us"] if is_congestion(line) else row["healthy_us"]
    ratio = row["time_us"] / healthy_us
    whys = [each["why"] for each in row["unaffected"]]
    broken = "faster" if ratio < FASTER else ""
    if abs(ratio - 1) <= PER_MILLE and (not whys or any(UNKNOWN in why for why in whys)):
        broken = "silent"
    said = "; ".join(whys) or ", ".join(_met(row))
    return Judged(name, fault, transport, said, ratio, broken)


def _row(asked: Asked, transport: str, line: str) -> dict[str, Any]:
    op, healthy = asked.op, fabric(f"{asked.spec},transport={transport}")
    if is_congestion(line):
        other = congestion(line, healthy.n_ranks)
        question = SimulationSpec(op, healthy, "packets", healthy=healthy, beside=(other,))
    else:
        faults = AskedFaults((line,))
        question = SimulationSpec(op, faults.on(healthy), "packets", healthy=healthy, faults=faults)
    row: dict[str, Any] = sweep(question, [asked.algorithm], [asked.size_bytes])["rows"][0]
    return row


def _met(row: dict[str, Any]) -> Iterator[str]:
    for field, words in (("lost", "lost"), ("drops", "dropped"), ("pauses", "pauses")):
        if row[field]:
            yield f"{row[field]:,} {words}"
    if row["retransmitted_bytes"]:
        yield f"{row['retransmitted_bytes'] / 1024:,.0f} KiB sent again"


def kind(said: str) -> str:
    """Return a reason without its numbers and names, and of a job that ends what the library prints: equal ones have a letter."""
    if "would print:" in said:
        return said.partition("would print:")[2]
    return re.sub(r"\(.*|\S+ > \S+|\S*[0-9]\S*|\blink\b|\bib\b|srd|roce|tcp\S+", "#", said)


def markdown(every: list[Judged]) -> str:
    """Return a table for each fabric; what changed nothing or ended the job has a letter, explained by one of its answers."""
    letters: dict[str, tuple[str, str]] = {}
    lines: list[str] = []
    for name, asked in FABRICS.items():
        size = f"{asked.size_bytes >> 20} MiB"
        lines += [f"## {asked.op} by {asked.algorithm}, {size}, on `{asked.spec}`", ""]
        lines += [f"| fault | {' | '.join(PROTOCOLS)} |", f"|---|{'---|' * len(PROTOCOLS)}"]
        for fault, line in FAULTS.items():
            texts = []
            for transport in PROTOCOLS:
                here = next(
                    each for each in every if (each.fabric, each.fault, each.transport) == (name, fault, transport)
                )
                texts.append(_text(here, letters))
            what = line.format(link=asked.link, switch=asked.switch)
            lines.append(f"| `{what}` | {' | '.join(texts)} |")
        lines.append("")
    lines += [f"- **{letter}**: {said}" for letter, said in letters.values()]
    return "\n".join(lines)


def _text(here: Judged, letters: dict[str, tuple[str, str]]) -> str:
    unchanged = here.ratio is not None and abs(here.ratio - 1) <= PER_MILLE
    if here.ratio is not None and not unchanged:
        return f"{here.ratio:.4g}" + (f"; {here.said}" if here.said else "")
    letter, _ = letters.setdefault(kind(here.said), (_letter(len(letters)), here.said))
    what = "1" if unchanged else "refused" if here.said.startswith("refused") else "job ends"
    return f"{what} ({letter})"


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"a{_letter(number - 26)}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words of fabrics, faults and transports, comma separated")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    words = [word for word in given.only.split(",") if word]
    began, every = time.perf_counter(), []
    for name in FABRICS:
        for fault in FAULTS:
            for transport in PROTOCOLS:
                if not all(any(word in each for each in (name, fault, transport)) for word in words):
                    continue
                every.append(judged(name, fault, transport))
                if not given.markdown:
                    last = every[-1]
                    mark = f" [{last.broken.upper()}]" if last.broken else ""
                    print(f"{name} | {fault} | {transport} | {last.short()}{mark}", flush=True)
    if given.markdown:
        print(markdown(every))
    broken = [each for each in every if each.broken]
    print(f"{len(every)} answers in {time.perf_counter() - began:.0f} s, {len(broken)} break a law", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
