"""The costs of communication beside computation against measured rows: python benchmarks/gpu/judge_overlap.py h100|h200|FILE

Prints, section by section, how many rows there are, the median and the 90th percentile of the relative error, and the share of
rows within the tolerance. The costs were fitted to the H100; the tolerances were written down before the H200 was looked at.
Of a measured row a prediction is given the shape, the neighbour, the kernel that the library chose and the clock that was read
beside it, and in `tiles` and `driver` the times of both sides alone; never the answer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringwright.costs.contention import movers, pieces, products, sharing, starts, waves
from ringwright.costs.contention.multiprocessors import BOOST_HZ, Multiprocessors, multiprocessors
from ringwright_lab.judges import passes, triggers

HERE = Path(__file__).resolve().parent
# Share of a row by which it may be off, for each section; a section holds if 9 of 10 of its rows do.
TOLERANCES = {
    "waves": 0.15,  # a product's seconds by its rows, the kernel given
    "waves, kernel chosen": 0.15,  # likewise, the kernel guessed
    "cuts m, n": 0.15,  # pieces over the whole
    "cuts k": 0.25,
    "bandwidth": 0.10,  # bytes/s by multiprocessors
    "shared": 0.20,  # bytes/s of two kernels at once
    "beside hold": 0.10,  # slowdown of the product
    "beside copy": 0.20,
    "beside add": 0.20,
    "beside bus": 0.15,
    "planned hold": 0.15,  # likewise, the library told of fewer multiprocessors
    "planned copy": 0.35,
    "rate copy": 0.15,  # bytes/s of the neighbour
    "rate add": 0.15,
    "rate bus": 0.10,
    "driver": 0.15,  # a product beside copies inside the memory by the driver: both take turns
    "launches": 0.15,
    "tiles flags": 0.10,  # until all is carried away
    "tiles events": 0.20,
    "fused one": 0.15,
    "fused several": 0.10,
}
# Slowdowns by simpler rules, to compare with: no tolerance, nothing is judged by them.
PLAIN = ("hold", "copy", "add")
ENOUGH = 0.9
COVERED = 0.95  # a neighbour that left earlier tells of itself only in part
BUS = {"copy-h2d": (False, 1), "copy-d2h": (False, 1), "copy-h2d+d2h": (True, 2)}
PASS = passes.TensorPass
CHAINS = {
    "bias, dropout, residual": ([PASS(("x",), ("b",)), PASS(("b",), ("d",)), PASS(("d", "y"), ("out",))], ()),
    "add, send": ([PASS(("x", "y"), ("out",)), PASS(("out",), ("sent",))], ("out",)),
    "adam": (
        [PASS(("m", "g"), ("m",)), PASS(("v", "g"), ("v",)), PASS(("m", "v"), ("u",)), PASS(("p", "u"), ("p",))],
        (),
    ),
}
Measured = dict[str, Any]
Key = tuple[int, int, int, int]


@dataclass(frozen=True)
class Verdict:
    """One number of one measured row and what was predicted for it, in the same unit."""

    section: str
    row: Measured
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Judge:
    """A GPU and the kernels that its library chose, by m, n, k and the multiprocessors it was told of (0: all)."""

    on: Multiprocessors
    kernels: dict[Key, waves.TileKernel]

    @property
    def cool(self) -> Multiprocessors:
        """The same at its highest clock, as it runs where no tensor core works."""
        return self.on.at(BOOST_HZ)

    def kernel(self, row: Measured) -> waves.TileKernel | None:
        return self.kernels.get((row["m"], row["n"], row["k"], row.get("sm_target", 0)))


def kernels_of(rows: Iterable[Measured]) -> dict[Key, waves.TileKernel]:
    """Return the kernels by what they were chosen for; the library names its tiles columns first, as it sees the result."""
    out = {}
    for row in rows:
        named = re.search(r"_(\d+)x(\d+)_\d+x\d+_(\d+)x(\d+)_", str(row.get("kernel", "")))
        if row["section"] == "kernels" and named:
            columns, lines, *cluster = map(int, named.groups())
            kernel = waves.TileKernel(lines, columns, cluster[0] * cluster[1], row["blocks_x"] * row["blocks_y"])
            out[row["m"], row["n"], row["k"], row["sm_target"]] = kernel
    return out


def product_of(row: Measured) -> products.Product:
    return products.Product(row["m"], row["n"], row["k"])


def judge_waves(judge: Judge, row: Measured) -> Iterator[Verdict]:
    measured = row["product_us"]
    if kernel := judge.kernel(row):
        given = products.product_s(product_of(row), judge.on, 0, kernel)
        yield Verdict("waves", row, measured, given * 1e6)
    yield Verdict("waves, kernel chosen", row, measured, products.product_s(product_of(row), judge.on) * 1e6)


def judge_cuts(judge: Judge, row: Measured) -> Iterator[Verdict]:
    whole = product_of(row)
    ratio = pieces.pieces_s(whole, row["along"], row["pieces"], judge.on) / products.product_s(whole, judge.on)
    yield Verdict("cuts k" if row["along"] == "k" else "cuts m, n", row, row["ratio"], ratio)


def judge_bandwidth(judge: Judge, row: Measured) -> Iterator[Verdict]:
    if row["space"] == "memory" and row["threads"] == 512:
        rate = movers.payload_rate(row["job"], row["sms"], judge.cool)
        yield Verdict("bandwidth", row, row["payload_gbs"], rate / 1e9)


def judge_shared(judge: Judge, row: Measured) -> Iterator[Verdict]:
    jobs = (("copy", row["copy_sms"]), (row["other"], row["other_sms"]))
    copy, other = sharing.together(*jobs, judge.cool)
    yield Verdict("shared", row, row["copy_beside_gbs"], copy / 1e9)
    yield Verdict("shared", row, row["other_beside_gbs"], other / 1e9)


def judge_beside(judge: Judge, row: Measured) -> Iterator[Verdict]:
    job = row["neighbour"]
    if job in movers.TAKES_TURNS:
        yield Verdict("driver", row, row["beside_us"], row["alone_us"] + row["copy_alone_us"])
    elif job in BUS:
        both, times = BUS[job]
        if row["slowdown_after"]:
            slowdown = sharing.beside_bus(product_of(row), judge.on) / products.product_s(product_of(row), judge.on)
            yield Verdict("beside bus", row, row["slowdown_after"], slowdown)
        rate = times * row["bytes"] / times / movers.bus_s(row["bytes"] / times, both=both)
        yield Verdict("rate bus", row, row["neighbour_beside_gbs"], rate / 1e9)
    elif (kernel := judge.kernel(row)) and row["slowdown_after"] and row["covered"] >= COVERED:
        on = judge.on.at(row["sm_clock_mhz"] * 1e6) if row["sm_clock_mhz"] else judge.on
        told = sharing.beside(product_of(row), job, row["sms"], on, kernel)
        section = "planned" if row["sm_target"] else "beside"
        yield Verdict(f"{section} {job}", row, row["slowdown_after"], told.slowdown)
        if section == "beside":
            tiles, left = kernel.tiles(row["m"], row["n"]), on.sms - row["sms"]
            plain = -(-tiles // left) / -(-tiles // on.sms)
            yield Verdict(f"plain waves {job}", row, row["slowdown_after"], plain)
            yield Verdict(f"plain share {job}", row, row["slowdown_after"], on.sms / left)
        if job != "hold" and not row["sm_target"]:
            yield Verdict(f"rate {job}", row, row["neighbour_beside_gbs"], told.neighbour / 1e9)


def steps_of(what: str) -> list[starts.Step]:
    """Return the steps of a chain that was measured, by its name; none for one that no schedule has."""
    if what in ("kernel of 1 block", "kernel of 132 blocks"):
        return ["kernel"]
    if "other stream" in what:
        return ["kernel", "word" if "word" in what else "event"] * 2
    if copied := re.search(r"copy (d2d|h2d|d2h) ", what):
        copy: starts.Step = {"d2d": "copy-d2d", "h2d": "copy-h2d", "d2h": "copy-d2h"}[copied[1]]  # type: ignore[assignment]
        return ["kernel", copy] if what.startswith("kernel, then") else [copy]
    return []


def judge_launches(_: Judge, row: Measured) -> Iterator[Verdict]:
    if row["what"].startswith("graph"):
        told = starts.graph_s(row["chain"], forked="two at once" in row["what"])
        yield Verdict("launches", row, row["graph_us"], told * 1e6)
    elif steps := steps_of(row["what"]):
        size = re.search(r"(\d+) B", row["what"])
        told = starts.chain_s(steps, int(size[1]) if size else 0, queued=row["queued"])
        yield Verdict("launches", row, row["step_us"], told * 1e6)


def judge_tiles(judge: Judge, row: Measured) -> Iterator[Verdict]:
    copy_s, count, sms, flags = row["copy_us"] / 1e6, row["pieces"], row["sms"], row["trigger"] == "flags"
    alone_s = (row["product_us"] if flags else row["product_pieces_us"]) / 1e6
    piece = products.Product(row["m"] // count, row["n"], row["k"])
    if sms and flags:  # blocks of the product, two on a multiprocessor, one for each tile of 128 x 128
        tiles = row["m"] // 128 * (row["n"] // 128)
        slowed = waves.queued_turns(tiles, judge.on.sms, sms, 2) / waves.queued_turns(tiles, judge.on.sms, 0, 2)
        took = triggers.by_flags_s(row["product_us"] / 1e6, count, triggers.Carried(copy_s, slowed))
    elif sms:
        took = triggers.by_events_s(alone_s, count, triggers.by_kernel(piece, copy_s, sms, judge.on))
    else:
        carry = triggers.by_bus if "d2h" in row["carrier"] else triggers.by_driver
        took = triggers.by_events_s(alone_s, count, carry(copy_s))
    yield Verdict(f"tiles {row['trigger']}", row, row["overlapped_us"], took * 1e6)


def judge_fused(judge: Judge, row: Measured) -> Iterator[Verdict]:
    chain, kept = CHAINS[row["what"]]
    one = passes.passes_s([passes.fused(chain, kept)], row["tensor_bytes"], judge.on)
    yield Verdict("fused one", row, row["one_us"], one * 1e6)
    yield Verdict("fused several", row, row["several_us"], passes.passes_s(chain, row["tensor_bytes"], judge.on) * 1e6)


SECTIONS: dict[str, Callable[[Judge, Measured], Iterator[Verdict]]] = {
    "waves": judge_waves,
    "cuts": judge_cuts,
    "bandwidth": judge_bandwidth,
    "shared": judge_shared,
    "beside": judge_beside,
    "launches": judge_launches,
    "tiles": judge_tiles,
    "fused": judge_fused,
}


def verdicts(name: str, rows: list[Measured]) -> list[Verdict]:
    """Return what is predicted for the rows of a GPU, in their order; sections that the costs do not know give none."""
    judge = Judge(multiprocessors(name), kernels_of(rows))
    return [told for row in rows if row["section"] in SECTIONS for told in SECTIONS[row["section"]](judge, row)]


def rows_of(path: Path) -> list[Measured]:
    """Return the rows of a measurement's file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows: list[Measured] = json.load(file)["rows"]
    return rows


@dataclass(frozen=True)
class Tally:
    """Verdicts of one section together: errors as shares, and the share of rows within the tolerance; None: it has none."""

    section: str
    rows: int
    median: float
    p90: float
    tolerance: float | None
    within: float

    @property
    def holds(self) -> bool:
        """Whether enough rows are within the tolerance, where there is one."""
        return self.tolerance is None or self.within >= ENOUGH

    def __str__(self) -> str:
        """The row of the table."""
        judged = ("-", "-", "-")
        if self.tolerance is not None:
            judged = (f"{self.tolerance:.0%}", f"{self.within:.0%}", "yes" if self.holds else "no")
        return f"| {self.section} | {self.rows} | {self.median:.1%} | {self.p90:.1%} | {' | '.join(judged)} |"


HEAD = "| section | rows | median error | 90th percentile | tolerance | within | holds |\n|---|---|---|---|---|---|---|"


def tallies(every: list[Verdict]) -> list[Tally]:
    """Return the sections in the order of the tolerances, then the plain rules; one without a row is left out."""
    out = []
    for section in (*TOLERANCES, *(f"plain {rule} {job}" for job in PLAIN for rule in ("waves", "share"))):
        errors = sorted(abs(told.error) for told in every if told.section == section)
        if errors:
            tolerance = TOLERANCES.get(section)
            within = sum(error <= (tolerance or 0.0) for error in errors) / len(errors)
            at = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
            out.append(Tally(section, len(errors), statistics.median(errors), at, tolerance, within))
    return out


def main() -> int:
    """Print the table; 1 if a section does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", help="h100, h200, or the file of a measurement")
    parser.add_argument("--gpu", default="", help="which GPU a file is of")
    parser.add_argument("--worst", type=int, default=0, help="rows to show of each section, the farthest off")
    given = parser.parse_args()
    shipped = HERE / f"overlap-{given.measured}.json.gz"
    path = shipped if shipped.exists() else Path(given.measured)
    if not path.exists():
        parser.error(f"there is no {path}")
    every = verdicts(given.gpu or re.sub(r".*overlap-|\.json.*", "", path.name), rows_of(path))
    done = tallies(every)
    print(HEAD, *done, sep="\n")
    for section in TOLERANCES if given.worst else ():
        mine = sorted((told for told in every if told.section == section), key=lambda told: -abs(told.error))
        for told in mine[: given.worst]:
            about = {key: told.row[key] for key in WORTH if key in told.row}
            print(
                f"{section}: measured {told.measured:.4g}, predicted {told.predicted:.4g} ({told.error:+.1%}) {about}"
            )
    return 0 if all(each.holds for each in done) else 1


WORTH = (
    *(
        "m",
        "n",
        "k",
        "along",
        "pieces",
        "neighbour",
        "sms",
        "sm_target",
        "what",
        "queued",
        "tensor_bytes",
        "job",
        "space",
    ),
    *("trigger", "carrier", "copy_sms", "other", "pass"),
)

if __name__ == "__main__":
    sys.exit(main())
