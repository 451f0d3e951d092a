"""``ringwright bench``: collectives on real ranks, ours beside the libraries' and the simulator's, with nccl-tests' columns."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.cli.networks import AS_IT_IS, NetworkOptions
from ringwright.cli.sizes import Sizes
from ringwright.ground import drafts
from ringwright.ground.units import parse_time


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """How often a collective runs."""

    iters: Annotated[
        int, Parameter(name=["--iters", "-n"], help="Rounds; libraries and programs take turns in each.")
    ] = 10
    warmup: Annotated[int, Parameter(name=["--warmup", "-w"])] = 2


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReductionOptions:
    """What is reduced, how, and to which rank."""

    dtype: Annotated[str, Parameter(name=["--dtype", "-d"])] = "float32"
    op: Annotated[
        str | None,
        Parameter(
            help="Reduction: sum (the default), prod, max or min. -o sum, as nccl-tests spells it, is still read as that."
        ),
    ] = None
    root: Annotated[int, Parameter(name=["--root", "-r"])] = 0


FROM_64K, TEN_ROUNDS, OF_FLOATS = Sizes(begin="64K"), RoundOptions(), ReductionOptions()


def bench(
    collective: str,
    *,
    ranks: Annotated[int, Parameter(name=["--ranks", "-g"])] = 4,
    backend: str = "ringwright",
    algorithm: str = "ring",
    sizes: Sizes = FROM_64K,
    rounds: RoundOptions = TEN_ROUNDS,
    reduction: ReductionOptions = OF_FLOATS,
    lab: str | None = None,
    network: NetworkOptions = AS_IT_IS,
    output: options.Folder = None,
    calibration: Path | None = None,
    json: options.Json = False,
) -> int:
    """Run a collective on real ranks: our programs, native libraries forced to the same algorithm, the prediction beside.

    Parameters
    ----------
    backend
        Comma separated: openmpi, mpich, gloo, nccl, ringwright (shared memory; sockets in a lab), ringwright@gloo.
    algorithm
        Systems, comma separated: ring,rabenseifner (list algorithms; their knobs: systems SLUG).
    lab
        Talk over a network of namespaces: switch:4,rate=100Mb/s.
    output
        Folder for a capture, for the verb compare.
    calibration
        Write what a message costs here to this file.
    json
        Print one JSON object instead (schema ringwright.bench/1).

    Examples
    --------
    ringwright bench all-reduce --ranks 2 -b 64K -e 1M -f 4 -n 3
    """
    from ringwright_lab.bench import BenchSpec, bench, calibration_of
    from ringwright_lab.reports import benched

    op, out = _reduction_and_folder(reduction.op, output)
    question = BenchSpec(
        collective,
        ranks,
        sizes.listed(collective),
        backend.split(","),
        algorithm.split(","),
        reduction.dtype,
        op,
        reduction.root,
        rounds.iters,
        rounds.warmup,
        lab,
        network.fault,
        network.tcp,
        network.seed,
        parse_time(network.timeout),
        record=out is not None,
    )
    with drafts.grown(out) if out else contextlib.nullcontext(), progress.steps("measuring") as advance:
        result = bench(question, out=out, progress=advance)
    if calibration is not None:
        calibration_of(result, calibration)
    (reading.print_json if json else partial(benched.write, file=sys.stdout))(result)
    return 1 if any(row["wrong"] for row in result["rows"]) else 0


def _reduction_and_folder(op: str | None, output: Path | None) -> tuple[str, Path | None]:
    """Return the reduction and the folder; -o with the name of a reduction is that reduction, as it was until now."""
    from ringwright.model.collective import REDUCE_OPS

    if output is not None and op is None and str(output) in REDUCE_OPS:
        print(f"ringwright: -o {output} is read as --op {output}; -o will name the folder alone", file=sys.stderr)
        return str(output), None
    return op or "sum", output
