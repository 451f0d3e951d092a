"""A run on real ranks as a Trace: one collective per rank, one event per message and end, on the machine's steady clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.model.run_tables import TraceWriter, communicator, communicators, devices

if TYPE_CHECKING:
    import polars as pl

    from ringwright.execute.job import NodeResult
    from ringwright.execute.plan import NodePlan
    from ringwright.model.program import Program
    from ringwright.model.trace import Trace

WRITER = TraceWriter(source="executor", clock="monotonic")


def trace(
    program: Program, plans: Sequence[NodePlan], results: Sequence[NodeResult], *, executor: str, hosts: bool = False
) -> Trace:
    """Return one recorded run; times count from when the first rank began. ``hosts``: each rank is a host of its own.

    A send lasts from its posting until its source may be overwritten, a receive from its posting until the bytes lie, or are
    added, where they belong.
    """
    import polars as pl

    zero_s = min(each.started_s for each in results[: program.p])
    group = program.collective.group
    messages = [_messages(program, plan, each, zero_s) for plan, each in zip(plans, results, strict=True)]
    return WRITER.trace(
        program.p,
        f"{program.name} on real ranks, {executor}",
        events=pl.concat([_collectives(program, results, zero_s), *messages]),
        communicators=communicators([communicator(group, comm_id="executed", name=executor)]),
        topology=devices(group, [f"host{rank}" if hosts else "host0" for rank in range(program.p)]),
    )


def _collectives(program: Program, results: Sequence[NodeResult], zero_s: float) -> pl.DataFrame:
    ran = results[: program.p]
    starts = [each.started_s - zero_s for each in ran]
    ends = [max([span.end_s for span in each.spans] or [each.started_s]) - zero_s for each in ran]
    lasted = [end - start for start, end in zip(starts, ends, strict=True)]
    return WRITER.collectives(program, start_s=starts, enqueue_s=starts, duration_s=lasted)


def _messages(program: Program, plan: NodePlan, result: NodeResult, zero_s: float) -> pl.DataFrame:
    import polars as pl

    of = (*program.collective.group, *program.aggregators)
    rows = []
    for span in result.spans:
        message = (plan.sends if span.sends else plan.receives)[span.which]
        adds = any(run.adds for run in message.runs)
        rows.append(
            {
                "rank": of[plan.node],
                "comm_rank": plan.node,
                "peer": message.peer,
                "size_bytes": message.size,
                "sent_bytes": message.size if span.sends else 0,
                "iteration": message.step,
                "start_s": span.start_s - zero_s,
                "duration_s": span.end_s - span.start_s,
                "op": "send" if span.sends else "reduce" if adds else "recv",
            }
        )
    schema = {
        "rank": pl.Int64,
        "comm_rank": pl.Int64,
        "peer": pl.Int64,
        "size_bytes": pl.Int64,
        "sent_bytes": pl.Int64,
        "iteration": pl.Int64,
        "start_s": pl.Float64,
        "duration_s": pl.Float64,
        "op": pl.String,
    }
    return WRITER.events(
        pl.DataFrame(rows, schema=schema), kind="proxy", task=program.name, communicator=0, nranks=program.p
    )
