"""``ringwright.export``: a Program, a Topology, a Workload or a Trace in the format of another system."""

from __future__ import annotations

from pathlib import Path

from ringwright.calls import export_files
from ringwright.formats.exports import find
from ringwright.ground.errors import UsageError
from ringwright.jobs import workload_files
from ringwright.jobs.one_clock import one_clock
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.trace import Trace
from ringwright.model.workload import Workload


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
        Topology ``astra-network`` or ``topology-json``; of a Workload ``json``, ``chakra``, ``ddp-buckets``,
        ``ddp-buckets-py``, ``fsdp2-prefetch``, ``fsdp2-prefetch-py``, ``megatron-flags``, ``torchtitan-toml`` or
        ``pipeline-csv``; of a Trace ``parquet``, ``csv``, ``jsonl``, ``perfetto``, ``prometheus``, ``otlp`` or ``chakra``.
    output
        The file; a folder where there are several (``parquet``, ``csv``, ``chakra``).
    force
        Overwrite what lies there.

    Returns
    -------
    list of Path
        The files that were written.

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
        return export_files.write_program(what, to, output, force=force)
    if isinstance(what, Topology):
        return export_files.write([*find(to, "topology").files(what)], output, force=force)
    if isinstance(what, Workload):
        return workload_files.save(what, output, to, force=force)
    if isinstance(what, Trace):
        return find(to, "trace").write(one_clock(what) if to == "perfetto" else what, output, force=force)
    raise UsageError(f"a {type(what).__name__} cannot be written", remedy="a Program, Topology, Workload or Trace")
