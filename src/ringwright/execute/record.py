"""A run on real ranks as a Trace: one collective per rank, one event per message and end, on the machine's steady clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringwright.trace import Trace, conform

if TYPE_CHECKING:
    import polars as pl

    from ringwright.execute.job import Found
    from ringwright.execute.plan import Plan
    from ringwright.program import Program

SOURCE = "executor"
CLOCK = "monotonic"


def trace(
    program: Program, plans: Sequence[Plan], found: Sequence[Found], *, executor: str, hosts: bool = False
) -> Trace:
    """Return one recorded run; times count from when the first rank began. ``hosts``: each rank is a host of its own.

    A send lasts from its posting until its source may be overwritten, a receive from its posting until the bytes lie, or are
    added, where they belong.
    """
    import polars as pl

    begun = [each.started_s for each in found[: program.p]]
    zero_s = min(begun)
    frames = {
        "events": pl.concat(
            [
                conform("events", _collectives(program, found, zero_s)),
                *[
                    conform("events", _messages(program, plan, each, zero_s))
                    for plan, each in zip(plans, found, strict=True)
                ],
            ]
        ),
        "communicators": pl.DataFrame(
            {
                "communicator": [0],
                "comm_id": ["executed"],
                "name": [executor],
                "size": [program.p],
                "members": [list(program.collective.group)],
                "ranks_seen": [program.p],
                "role": ["world"],
                "ground": ["read"],
                "confidence": [1.0],
            }
        ),
        "topology": pl.DataFrame(
            {
                "kind": ["device"] * program.p,
                "rank": list(program.collective.group),
                "host": [f"host{rank}" if hosts else "host0" for rank in range(program.p)],
                "ground": ["read"] * program.p,
            }
        ),
    }
    return Trace.of(
        frames, {"source": SOURCE, "world": program.p, "summary": f"{program.name} on real ranks, {executor}"}
    )


def _collectives(program: Program, found: Sequence[Found], zero_s: float) -> pl.DataFrame:
    import polars as pl

    collective, p = program.collective, program.p
    same: dict[str, Any] = {
        "kind": "collective", "op": collective.op, "task": program.name, "multiplicity": 1, "records": 1, "communicator": 0,
        "nranks": p, "sequence": 0, "datatype": collective.dtype, "size_bytes": collective.size_bytes,
        "reduce_op": collective.reduce_op if collective.reduces else None, "root": collective.root,
        "algorithm": str(program.knobs.get("algorithm") or program.name), "channels": program.channels, "clock": CLOCK,
        "source": SOURCE, "ground": "read", "confidence": 1.0,
    }  # fmt: skip
    starts = [each.started_s - zero_s for each in found[:p]]
    ends = [max([span.end_s for span in each.spans] or [each.started_s]) - zero_s for each in found[:p]]
    columns = {
        "rank": list(collective.group), "comm_rank": list(range(p)), "start_s": starts, "enqueue_s": starts,
        "duration_s": [end - start for start, end in zip(starts, ends, strict=True)],
    }  # fmt: skip
    return pl.DataFrame(columns).with_columns(pl.lit(value).alias(name) for name, value in same.items())


def _messages(program: Program, plan: Plan, found: Found, zero_s: float) -> pl.DataFrame:
    import polars as pl

    rows = []
    for span in found.spans:
        message = (plan.sends if span.sends else plan.receives)[span.which]
        adds = any(run.adds for run in message.runs)
        rows.append(
            {
                "rank": plan.node,
                "peer": message.peer,
                "size_bytes": message.size,
                "sent_bytes": message.size if span.sends else 0,
                "iteration": message.step,
                "start_s": span.start_s - zero_s,
                "duration_s": span.end_s - span.start_s,
                "op": "send" if span.sends else "reduce" if adds else "recv",
            }
        )
    same = {
        "kind": "proxy", "task": program.name, "multiplicity": 1, "records": 1, "communicator": 0, "nranks": program.p,
        "clock": CLOCK, "source": SOURCE, "ground": "read", "confidence": 1.0,
    }  # fmt: skip
    schema = {
        "rank": pl.Int64, "peer": pl.Int64, "size_bytes": pl.Int64, "sent_bytes": pl.Int64, "iteration": pl.Int64,
        "start_s": pl.Float64, "duration_s": pl.Float64, "op": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema).with_columns(pl.lit(value).alias(name) for name, value in same.items())
