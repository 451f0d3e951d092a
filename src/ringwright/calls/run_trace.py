"""A simulated run as a Trace, so that every report, query and export of a measured job works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.calls.rank_placement import device_rows
from ringwright.model.run_tables import TraceWriter, communicator, communicators

if TYPE_CHECKING:
    import polars as pl

    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace

WRITER = TraceWriter(source="simulator", clock="simulated")


def trace(program: Program, topology: Topology, run: Run, asked: AskedOf | None = None) -> Trace:
    """Return the run: one collective per rank, one proxy event per message, bytes per link, the communicator, the ground.

    Of a folded run each message stands for ``multiplicity`` equal ones; engines without messages give the collectives alone.
    """
    import polars as pl

    collective, time_s = program.collective, run.time_s
    events = [
        WRITER.collectives(program, enqueue_s=0.0, start_s=0.0, duration_s=time_s, protocol=program.protocol or None)
    ]
    if run.flat is not None and run.flat.n_messages:
        events.append(_messages(program, run))
    links, queues = _links(run), _queues(run)
    return WRITER.trace(
        program.p,
        f"{program.name} on {topology.name}, {run.engine}",
        events=pl.concat(events),
        communicators=communicators([communicator(collective.group, comm_id="simulated", name=topology.name)]),
        topology=device_rows(program.collective.group, topology),
        links=links if queues is None else pl.concat([links, queues], how="diagonal_relaxed"),
        claims=_claims(program, topology, run),
        asked=asked or asked_of(topology, (program.name,)),
    )


def _messages(program: Program, run: Run) -> pl.DataFrame:
    import numpy as np

    flat = run.flat
    assert flat is not None  # noqa: S101 - the caller has looked
    n = flat.n_messages
    return WRITER.events(
        {
            "rank": flat.src[:n],
            "peer": flat.dst[:n],
            "sent_bytes": flat.size_bytes[:n],
            "size_bytes": flat.size_bytes[:n],
            "iteration": flat.step[:n],
            "start_s": run.start_ps[:n] / 1e12,
            "duration_s": (run.end_ps[:n] - run.start_ps[:n]) / 1e12,
            "op": np.where(flat.adds[:n], "reduce", "send"),
            "multiplicity": np.ones(n, np.int64) if flat.weight is None else flat.weight,
        },
        kind="proxy",
        task=program.name,
        communicator=0,
        nranks=program.p,
        rank_class="all" if run.folded else None,
    )


def _links(run: Run) -> pl.DataFrame:
    import polars as pl

    rows = run.load(1 << 20)
    ends = [name.partition(" > ") for name, _, _ in rows]
    return pl.DataFrame(
        {
            "src": [before for before, _, _ in ends],
            "dst": [after or None for _, _, after in ends],
            "link": [name for name, _, _ in rows],
            "bin_start_s": [0.0] * len(rows),
            "bin_s": [run.time_s] * len(rows),
            "bytes": [size for _, _, size in rows],
        },
        schema_overrides={"dst": pl.String, "src": pl.String, "link": pl.String, "bytes": pl.Float64},
    )


def _queues(run: Run) -> pl.DataFrame | None:
    """Return a row for each stretch of time in which packets waited in front of a link; None where none were followed."""
    import polars as pl

    met, made = run.packets, run.machine
    if met is None or made is None or not len(met.queues):
        return None
    bins, ports, longest = met.queues.T
    named = {port: made.label(port) for port in set(ports.tolist())}
    ends = [named[port].partition(" > ") for port in ports.tolist()]
    return pl.DataFrame(
        {
            "src": [before for before, _, _ in ends],
            "dst": [after or None for _, _, after in ends],
            "link": [named[port] for port in ports.tolist()],
            "bin_start_s": bins * (met.bin_ps / 1e12),
            "bin_s": [met.bin_ps / 1e12] * len(bins),
            "queue_bytes": longest.astype(float),
        },
        schema_overrides={"dst": pl.String},
    ).sort("link", "bin_start_s")


def _claims(program: Program, topology: Topology, run: Run) -> pl.DataFrame:
    rows = [
        ("engine", run.engine, f"leaves out: {'; '.join(run.left_out)}"),
        ("fabric", topology.name, topology.provenance),
        ("algorithm", program.name, str(dict(program.knobs))),
        ("symmetry", str(run.parts), run.unfolded_because or "so many messages for each simulated one"),
    ]
    return WRITER.claims(rows, assumed="fabric")
