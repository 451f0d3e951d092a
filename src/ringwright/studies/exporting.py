"""One verb for all that can be written down for other systems: a Program, a Topology, a Workload, a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ringwright.errors import UsageError
from ringwright.program import Program
from ringwright.studies import export as files
from ringwright.studies.jobs import written
from ringwright.topology import Topology
from ringwright.trace import Trace
from ringwright.workload import Workload


def export(
    what: Program | Topology | Workload | Trace, to: str, output: str | Path, *, force: bool = False
) -> list[Path]:
    """Write a noun in the format of another system.

    Parameters
    ----------
    what
        A Program, Topology, Workload or Trace.
    to
        Of a Program ``msccl-xml``, ``mscclpp-json``, ``goal``, ``goal-binary``, ``chakra`` or ``chakra-collective``; of a
        Topology ``astra-network`` or ``topology-json``; of a Workload ``json``, ``chakra``, ``ddp-buckets`` or
        ``ddp-buckets-py``; of a Trace ``parquet``, ``csv``, ``jsonl``, ``perfetto`` or ``prometheus``.
    output
        The file; a folder where there are several (``parquet``, ``csv``, a Workload's ``chakra``).
    force
        Overwrite what lies there.

    Returns
    -------
    list of Path
        The files, or the folder, that were written.

    Raises
    ------
    UsageError
        The noun has no such format (it names those it has), or the output exists and ``force`` is not set.

    Examples
    --------
    >>> import pathlib, tempfile, ringwright
    >>> all_gather = ringwright.Collective("all-gather", range(4), 4096)
    >>> ring = ringwright.algorithm("ring")(all_gather, ringwright.fabric("switch:4"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file] = ringwright.export(ring, "msccl-xml", pathlib.Path(folder) / "ring.xml")
    ...     ringwright.verify(file).valid
    True
    """
    output = Path(output)
    if isinstance(what, Program):
        return files.write(_form(files.PROGRAM, to, "Program")(what), output, force=force)
    if isinstance(what, Topology):
        return files.write([_form(files.FABRIC, to, "Topology")(what)], output, force=force)
    if isinstance(what, Workload):
        _form(written.FORMS, to, "Workload")
        return written.save(what, output, to, force=force)
    if isinstance(what, Trace):
        return _trace(what, to, output, force=force)
    raise UsageError(f"a {type(what).__name__} cannot be written", remedy="a Program, Topology, Workload or Trace")


def _form(known: Mapping[str, Any], to: str, noun: str) -> Any:
    if to not in known:
        raise UsageError(f"'{to}' is no export of a {noun}", remedy=f"one of: {', '.join(known)}")
    return known[to]


def _trace(trace: Trace, to: str, output: Path, *, force: bool) -> list[Path]:
    from ringwright.exports import csv, jsonl, parquet, perfetto, prometheus
    from ringwright.studies.timeline import one_clock

    writers: dict[str, Callable[..., list[Path]]] = {
        "parquet": parquet.parquet, "csv": csv.csv, "jsonl": jsonl.jsonl, "perfetto": perfetto.perfetto,
        "prometheus": prometheus.prometheus,
    }  # fmt: skip
    write = _form(writers, to, "Trace")
    made: list[Path] = write(one_clock(trace) if to == "perfetto" else trace, output, force=force)
    return made
