"""The experiments in the lab: 2 x 2 ranks behind two leaves, two networks of unlike rates, messages beside a sum.

What is predicted knows the rates of the links, that one TCP flow has 95.6 % of one, and the bytes that the rules say; nothing
of the measured run enters it.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ringwright.execute.rank_processes import run_ranks
from ringwright_lab.judges.partitioned import ranks
from ringwright_lab.judges.partitioned.ranks import MESSAGE_ELEMENTS, RanksAsked
from ringwright_lab.network.network import LabNetwork, network
from ringwright_lab.network.shaping import GOODPUT

WIDTH = 4
# Bytes/s of a rank's port, and of the link that two ranks share between their leaf and the spine.
INNER, OUTER = 62.5e6, 3.125e6
NODES = f"leaf-spine:4,per_leaf=2,spines=1,rate=500Mb/s,oversubscription={2 * INNER / OUTER:g}"
FAST = 12.5e6  # bytes/s of the fast network; the other has a quarter
NETWORKS, SLOW_LINES = "switch:4,rate=100Mb/s", ("link rank1 rate 25%", "link rank3 rate 25%")
PAIR, PAIR_RATE = "switch:2,rate=25Mb/s", 3.125e6
ELEMENTS, BLOCK = 1 << 19, 1 << 15
MOST_S = 60.0


@dataclass(frozen=True)
class PartitionedRow:
    """One form: seconds predicted and measured (the least of its rounds, or the median wait of messages), and bytes across."""

    form: str
    predicted_s: float
    measured_s: float
    across_bytes: float
    right: bool


def carried_out(net: LabNetwork, asked: RanksAsked) -> tuple[list[list[float]], bool]:
    """Return what each rank measured, and whether all sums were right; RanksFailedError where a rank died."""
    with tempfile.TemporaryDirectory(prefix="ringwright-") as name:
        folder = Path(name)
        (folder / "asked.json").write_text(json.dumps(asdict(asked)))
        run_ranks(ranks.__name__, folder, net.places[: asked.ranks], MOST_S)
        told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(asked.ranks)]
    return [each["times_s"] for each in told], all(each["right"] for each in told)


def levels(forms: tuple[str, ...] = ("whole", "levels", "levels in chunks"), rounds: int = 3) -> list[PartitionedRow]:
    """Return a row for each form of a sum over two nodes of two ranks: a ring passes 1.5 of its bytes, levels 1."""
    size, rows = ELEMENTS * WIDTH, []
    across = {"whole": 1.5, "levels": 1.0, "levels in chunks": 1.0}
    inner_s = {"whole": 0.0, "levels": size / INNER / GOODPUT, "levels in chunks": size / INNER / GOODPUT / 2}
    with network(NODES, force=True) as net:
        net.start_faults()
        port = next(name for name in net.counters() if name.startswith("leaf0>spine"))
        for form in forms:
            before = net.counters()[port]
            times, right = carried_out(net, RanksAsked(form, 4, ELEMENTS, rounds))
            sent = (net.counters()[port] - before) / (rounds + 1)
            predicted = across[form] * size / OUTER / GOODPUT + inner_s[form]
            rows.append(
                PartitionedRow(form, predicted, min(max(each) for each in zip(*times, strict=True)), sent, right)
            )
    return rows


def split(share: float = 0.8, rounds: int = 3) -> list[PartitionedRow]:
    """Return a sum of two nodes over the fast network alone, and split over both: ranks 0 and 2 have one, 1 and 3 the other."""
    size, rows = ELEMENTS * WIDTH, []
    with network(NETWORKS, SLOW_LINES, force=True) as net:
        net.start_faults()
        for part in (1.0, share):
            times, right = carried_out(net, RanksAsked("split", 4, ELEMENTS, rounds, share=part))
            predicted = size * max(part / FAST, (1 - part) * 4 / FAST) / GOODPUT
            measured = min(max(each) for each in zip(*times, strict=True))
            rows.append(PartitionedRow(f"{part:.0%} on the fast network", predicted, measured, 0.0, right))
    return rows


def messages(rounds: int = 16) -> list[PartitionedRow]:
    """Return the median wait of a message beside sums as a whole, and in blocks: half a sum or block, and its own time."""
    rows = []
    with network(PAIR, force=True) as net:
        net.start_faults()
        for block in (0, BLOCK):
            times, right = carried_out(net, RanksAsked("messages", 2, ELEMENTS, rounds, block=block))
            unit_s = (block or ELEMENTS) * WIDTH / PAIR_RATE / GOODPUT
            predicted = unit_s / 2 + MESSAGE_ELEMENTS * 8 / PAIR_RATE / GOODPUT
            form = f"blocks of {block * WIDTH >> 10} KiB" if block else "whole sums"
            rows.append(PartitionedRow(form, predicted, median(times[1]), 0.0, right))
    return rows
