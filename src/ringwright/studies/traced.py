"""A simulated run as a Trace, so that every report, query and export of a measured job works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.trace import Trace, conform

if TYPE_CHECKING:
    import polars as pl

    from ringwright.engines.result import Run
    from ringwright.program import Program
    from ringwright.topology import Topology

SOURCE = "simulator"
CLOCK = "simulated"


def trace(program: Program, topology: Topology, run: Run) -> Trace:
    """Return the run: one collective per rank, one proxy event per message, bytes per link, the communicator, the ground.

    Of a folded run each message stands for ``multiplicity`` equal ones; engines without messages give the collectives alone.
    """
    import polars as pl

    collective = program.collective
    events = [_collectives(program, run)]
    if run.flat is not None and run.flat.n_messages:
        events.append(_messages(program, run))
    communicator = {
        "communicator": [0], "comm_id": ["simulated"], "name": [topology.name], "size": [collective.p],
        "members": [list(collective.group)], "ranks_seen": [collective.p], "role": ["world"], "ground": ["read"],
        "confidence": [1.0],
    }  # fmt: skip
    frames = {
        "events": pl.concat([conform("events", frame) for frame in events]),
        "communicators": pl.DataFrame(communicator),
        "topology": _devices(program, topology),
        "links": _links(run),
        "claims": _claims(program, topology, run),
    }
    return Trace.of(
        frames, {"source": SOURCE, "world": program.p, "summary": f"{program.name} on {topology.name}, {run.engine}"}
    )


def _collectives(program: Program, run: Run) -> pl.DataFrame:
    import polars as pl

    collective, p = program.collective, program.collective.p
    same: dict[str, Any] = {
        "kind": "collective", "op": collective.op, "task": program.name, "multiplicity": 1, "records": 1, "communicator": 0,
        "nranks": p, "sequence": 0, "datatype": collective.dtype, "size_bytes": collective.size_bytes,
        "reduce_op": collective.reduce_op if collective.reduces else None, "root": collective.root,
        "algorithm": str(program.knobs.get("algorithm") or program.name), "protocol": program.protocol or None,
        "channels": program.channels, "enqueue_s": 0.0, "start_s": 0.0, "duration_s": run.time_s, "clock": CLOCK,
        "source": SOURCE, "ground": "read", "confidence": 1.0,
    }  # fmt: skip
    ranks = pl.DataFrame({"rank": list(collective.group), "comm_rank": list(range(p))})
    return ranks.with_columns(pl.lit(value).alias(name) for name, value in same.items())


def _messages(program: Program, run: Run) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    flat = run.flat
    assert flat is not None  # noqa: S101 - the caller has looked
    n = flat.n_messages
    columns = {
        "rank": flat.src[:n], "peer": flat.dst[:n], "sent_bytes": flat.size_bytes[:n], "size_bytes": flat.size_bytes[:n],
        "iteration": flat.step[:n], "start_s": run.start_ps[:n] / 1e12, "duration_s": (run.end_ps[:n] - run.start_ps[:n]) / 1e12,
        "op": np.where(flat.adds[:n], "reduce", "send"),
    }  # fmt: skip
    same = {
        "kind": "proxy", "task": program.name, "multiplicity": run.parts, "records": 1, "communicator": 0,
        "nranks": program.p, "clock": CLOCK, "source": SOURCE, "ground": "read", "confidence": 1.0,
        "rank_class": "all" if run.folded else None,
    }  # fmt: skip
    return pl.DataFrame(columns).with_columns(pl.lit(value).alias(name) for name, value in same.items())


def _devices(program: Program, topology: Topology) -> pl.DataFrame:
    """Return where each rank lies, hosts named as the fabric names them."""
    import numpy as np
    import polars as pl

    ranks = np.asarray(program.collective.group, np.int64)
    hosts = np.zeros(len(ranks), np.int64) if topology.hosts is None else topology.hosts[ranks]
    first = {int(host): int(np.flatnonzero(hosts == host)[0]) for host in np.unique(hosts)}
    named = (
        [topology.label(int(rank)).partition("/")[0] for rank in ranks]
        if topology.hosts is not None
        else ["host0"] * len(ranks)
    )
    return pl.DataFrame(
        {
            "kind": ["device"] * len(ranks),
            "rank": ranks,
            "host": named,
            "device": [place - first[int(host)] for place, host in enumerate(hosts)],
            "ground": ["read"] * len(ranks),
        }
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


def _claims(program: Program, topology: Topology, run: Run) -> pl.DataFrame:
    import polars as pl

    rows = [
        ("engine", run.engine, f"leaves out: {'; '.join(run.left_out)}"),
        ("fabric", topology.name, topology.provenance),
        ("algorithm", program.name, str(dict(program.knobs))),
        ("symmetry", str(run.parts), run.unfolded_because or "each message stands for so many"),
    ]
    return pl.DataFrame(
        {
            "field": [row[0] for row in rows],
            "value": [row[1] for row in rows],
            "note": [row[2] for row in rows],
            "source": [SOURCE] * len(rows),
            "ground": ["assumed" if row[0] == "fabric" else "read" for row in rows],
            "confidence": [1.0] * len(rows),
        }
    )
