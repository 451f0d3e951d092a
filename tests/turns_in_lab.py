"""Two blocks on two ranks behind links of a given rate: by turns, and with recomputation in a wait; predicted and measured."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from block_jobs import blocks
from ringwright.engines.job.run import simulate
from ringwright.formats.exports.workload_json import workload_json
from ringwright.graph.memory import peak_bytes
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.lynx import lynx
from ringwright.schedulers.decompose.oases import oases
from ringwright_lab.judges.in_lab import OF_A_LINK
from ringwright_lab.network import ranks

RATE_BITS, WHOLE_BYTES, BLOCK_S = 100e6, 1_000_000, 0.08
LINK = LinkCosts(RATE_BITS / 8 * OF_A_LINK, ring=True)
PROGRAM = Path(__file__).parent / "timed_order_ranks.py"


def timed(*large: str, batches: int = 1) -> Workload:
    """Return two blocks on two ranks in which a block takes about as long as its sum; backward twice as long.

    What is sent is ``large``, or, where others are named, they are: memory is then theirs.
    """
    share = {"middle": 0.1, "active": 0.4, "out": 0.5, "back": 0.7, "through": 0.0, "weights": 0.6, "inputs": 0.7}
    step = blocks(2, batches)
    large = large or tuple(name for each in step.payloads for name in (each.source, each.result))
    turns = [(phase, 0, batch) for phase in ("F", "B") for batch in range(batches)]
    return replace(
        step,
        order={"all": tuple(turns)},
        tasks=tuple(replace(t, seconds=BLOCK_S * share[t.name[:-1]], layer=int(t.name[-1])) for t in step.tasks),
        payloads=tuple(replace(each, size_bytes=WHOLE_BYTES) for each in step.payloads),
        values=tuple(replace(v, size_bytes=WHOLE_BYTES) if v.name in large else v for v in step.values),
    )


def halves() -> tuple[Workload, Workload]:
    """Return the step, and the step whose halves take turns."""
    step = timed()
    return step, oases(step, LINK, dim="b")


def waits() -> tuple[Workload, Workload, float]:
    """Return the step that computes again in waits, the one that does when asked, and the seconds that could be saved."""
    step = timed("active0", "active1", batches=2)
    limit = (peak_bytes(step) or 0) - round(0.8 * WHOLE_BYTES)
    in_wait, late = (lynx(step, LINK, memory_bytes=limit, overlap=each, early=False) for each in (1.0, 0.0))
    again = 2 * step.task["active0"].seconds  # of both micro-batches, in the wait for the layer above
    return in_wait, late, min(again, 2 * WHOLE_BYTES / LINK.rate)


def seconds(step: Workload) -> float:
    """Return the predicted seconds of a step."""
    return float(simulate(step, LINK, steps=1).times.end.max()) / 1e12


def measured(folder: Path, steps: list[Workload]) -> list[float]:
    """Return the least seconds of a step of each Workload, on two ranks behind links of a given rate."""
    for at, each in enumerate(steps):
        (folder / f"{at}.json").write_bytes(workload_json(each))
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(folder)]
    fabric = f"switch:2,rate={RATE_BITS / 1e6:g}Mb/s"
    result = ranks.run(fabric, command, timeout_s=60.0, out=folder / "lab", force=True)
    if result.code:
        raise RuntimeError([each.tail for each in result.ranks])
    return [min(each) for each in json.loads((folder / "times.json").read_text())]
