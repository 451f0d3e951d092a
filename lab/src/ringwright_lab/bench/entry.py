"""A benchmark in one call: the question from plain words, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringwright.calls import arguments
from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import rows_shown, shown
from ringwright_lab.bench.question import OURS, BenchSpec
from ringwright_lab.bench.study import bench as answered

_SEEN = rows_shown("real ranks of this machine", "rows")
USUAL_SIZES = ("64K", "1M", "16M")


def bench(
    what: str,
    ranks: int = 4,
    *,
    sizes: Sequence[int | str] = USUAL_SIZES,
    algorithms: Sequence[str] = ("ring",),
    backends: Sequence[str] = (OURS,),
    rounds: int = 10,
    warmup: int = 2,
    dtype: str = "float32",
    lab: str | None = None,
    faults: Sequence[str] = (),
    timeout_s: float = 60.0,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Run a collective on real ranks of this machine, the simulator's prediction beside each time.

    Parameters
    ----------
    what
        The operation: ``all-reduce``, ``all-gather`` ...
    ranks
        Processes that are started.
    sizes
        Bytes, or ``64K`` (binary), the size column of nccl-tests.
    algorithms
        Spellings of systems: ``ring``, ``rabenseifner``, ``blueconnect:factors=2x2``.
    backends
        ``ringwright`` (our programs over shared memory; over sockets in a lab), the libraries ``openmpi``, ``mpich``, ``gloo``
        and ``nccl``, or ``ringwright@gloo`` (our programs over a library's messages). One that is not here is told in ``notes``.
    rounds, warmup
        Rounds that are timed and those before; backends take turns in each.
    dtype
        Element type.
    lab, faults
        Talk over a network of namespaces, ``switch:4,rate=100Mb/s``, with lines of a fault script (needs root).
    timeout_s
        Without any progress for so long the ranks say who waits for whom, and end.
    out
        Folder for a capture, for ``ringwright compare``.

    Returns
    -------
    dict
        Schema ``ringwright.bench/1``: a row per backend, algorithm and size with ``time_us``, ``algbw_gbs``, ``busbw_gbs``,
        ``wrong`` elements and the predicted time; ``notes``.

    Raises
    ------
    UsageError
        A size, backend or algorithm that does not exist, or none that can run here.
    RanksFailedError
        The ranks did not come to an end.

    Examples
    --------
    >>> import ringwright
    >>> answer = ringwright.bench("all-reduce", ranks=2, sizes=["4K"], rounds=1)
    >>> [(row["algorithm"], row["size_bytes"], row["wrong"]) for row in answer["rows"]]
    [('ring', 4096, 0)]
    """
    if isinstance(sizes, str) or isinstance(algorithms, str) or isinstance(backends, str):
        raise UsageError("sizes, algorithms and backends are lists", remedy="sizes=['64K', '1M']")
    question = BenchSpec(
        what,
        ranks,
        [arguments.bytes_of(size) for size in sizes],
        backends,
        algorithms,
        dtype,
        rounds=rounds,
        warmup=warmup,
        lab=lab,
        faults=faults,
        timeout_s=timeout_s,
        record=out is not None,
    )
    return shown(answered(question, out=None if out is None else Path(out)), _SEEN)
