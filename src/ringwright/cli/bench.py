"""``ringwright bench``: collectives on real ranks, ours beside the libraries' and the simulator's, with nccl-tests' columns."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright import drafts
from ringwright.cli import reading
from ringwright.cli.sizes import Sizes
from ringwright.units import parse_time

FROM_64K = Sizes(begin="64K")


def bench(
    collective: str,
    *,
    ranks: Annotated[int, Parameter(name=["--ranks", "-g"])] = 4,
    backend: str = "ringwright",
    algorithm: str = "ring",
    sizes: Sizes = FROM_64K,
    iters: Annotated[int, Parameter(name=["--iters", "-n"])] = 10,
    warmup: Annotated[int, Parameter(name=["--warmup", "-w"])] = 2,
    dtype: Annotated[str, Parameter(name=["--dtype", "-d"])] = "float32",
    op: Annotated[str, Parameter(name=["--op", "-o"])] = "sum",
    root: Annotated[int, Parameter(name=["--root", "-r"])] = 0,
    lab: str | None = None,
    fault: tuple[str, ...] = (),
    tcp: str = "reno",
    seed: int = 0,
    timeout: str = "60s",
    out: Path | None = None,
    calibration: Path | None = None,
    json: bool = False,
) -> int:
    """Run a collective on real ranks: our programs, native libraries forced to the same algorithm, the prediction beside.

    Parameters
    ----------
    backend
        Comma separated: openmpi, mpich, gloo, nccl, ringwright (shared memory; sockets in a lab), ringwright@gloo.
    algorithm
        Systems, comma separated: ring,rabenseifner (their knobs: ringwright systems SLUG).
    iters
        Rounds; libraries and programs take turns in each.
    lab
        Talk over a network of namespaces: switch:4,rate=100Mb/s.
    fault
        A line of the lab's fault script; may be repeated.
    tcp
        Congestion control in the lab: reno, cubic or bbr.
    timeout
        Without any progress for so long the ranks say who waits for whom, and end.
    out
        Folder for a capture, for ringwright compare.
    calibration
        Write what a message costs here to this file.
    json
        Print one JSON object instead (schema ringwright.bench/1).
    """
    from ringwright.reports import benched
    from ringwright.studies.bench import BenchSpec, bench, calibration_of

    question = BenchSpec(
        collective,
        ranks,
        sizes.listed(collective),
        backend.split(","),
        algorithm.split(","),
        dtype,
        op,
        root,
        iters,
        warmup,
        lab,
        fault,
        tcp,
        seed,
        parse_time(timeout),
        record=out is not None,
    )
    with drafts.grown(out) if out else contextlib.nullcontext():
        result = bench(question, out=out, progress=reading.told)
    if calibration is not None:
        calibration_of(result, calibration)
    (reading.print_json if json else partial(benched.write, file=sys.stdout))(result)
    return 1 if any(row["wrong"] for row in result["rows"]) else 0
