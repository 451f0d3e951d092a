"""What recording costs a real training step: plain and recorded jobs in turns, wall time of a step and CPU time of the ranks.

    python benchmarks/bench_record.py [--pairs 30] [--source calls,no-layers,flight,profile] [--model resnet-18,llama]

Ranks are forked from one process that has loaded PyTorch; "plain" has no hook at all. Each pair gives one ratio of median steps,
and one of CPU seconds; printed are their geometric means with 95 % intervals (Student's t on logarithms). Order alternates.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

from ringwright.capture.settings import Options
from ringwright.studies.poster.effects import interval
from ringwright.studies.sweep.cell import Cell
from ringwright.studies.sweep.run import Ask, crew, run_cell

STEPS, WARM = 14, 3
CELLS = {
    "resnet-18": Cell("resnet", "resnet-18", dims="image=32,classes=10", parallel="ddp:dp=2", batch=8, steps=STEPS),
    "llama": Cell(
        "llama", dims="layers=6,hidden=384,intermediate=1024,heads=6,kv_heads=6,head=64,vocabulary=8192",
        parallel="ddp:dp=2", batch=2, sequence=128, steps=STEPS,
    ),
    "llama-tp": Cell(
        "llama", dims="layers=6,hidden=384,intermediate=1024,heads=6,kv_heads=6,head=64,vocabulary=8192",
        parallel="tp:tp=2", batch=4, sequence=128, steps=STEPS,
    ),
}  # fmt: skip
SOURCES = {
    "calls": Options(nccl="off"), "no-layers": Options(nccl="off", layers=False), "flight": Options(nccl="off", flight=True),
    "profile": Options(nccl="off", profile=(WARM, STEPS - WARM)),
}  # fmt: skip


def run(cell: Cell, options: Options | None, ask: Ask, folder: Path) -> tuple[float, float]:
    """Return (seconds of the median step on the slowest rank, CPU seconds of all ranks)."""
    facts = run_cell(cell, folder, ask, timeout_s=300.0, options=options)
    if facts["outcome"] != "done":
        raise SystemExit(f"{cell.key}: {facts['why']}")
    steps = [json.loads((folder / f"rank_{rank}.json").read_text())["times_s"][WARM:] for rank in range(cell.ranks)]
    shutil.rmtree(folder)
    return statistics.median(map(max, zip(*steps, strict=True))), facts["cpu_s"]


def measure(name: str, source: str, pairs: int, ask: Ask, folder: Path) -> str:
    cell, options = CELLS[name], SOURCES[source]
    wall, cpu, plain_s = [], [], []
    for pair in range(pairs):
        order = (None, options) if pair % 2 else (options, None)
        took = {each is None: run(cell, each, ask, folder / "cell") for each in order}
        wall.append(took[False][0] / took[True][0])
        cpu.append(took[False][1] / took[True][1])
        plain_s.append(took[True][0])
    ratios = [f"{mean:.4f} ({low:.4f} to {high:.4f})" for mean, low, high in map(interval, (wall, cpu))]
    return f"{name:10} {source:10} {pairs:5} {statistics.median(plain_s) * 1e3:9.1f}  {ratios[0]:28} {ratios[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--source", default="calls")
    parser.add_argument("--model", default="resnet-18,llama")
    given = parser.parse_args()
    print("model      source     pairs  plain ms  wall ratio (95 %)             CPU ratio (95 %)", flush=True)
    with tempfile.TemporaryDirectory() as folder, crew() as ask:
        for name in given.model.split(","):
            run(CELLS[name], None, ask, Path(folder) / "cell")  # the machine's first is not the others'
            for source in given.source.split(","):
                print(measure(name, source, given.pairs, ask, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
