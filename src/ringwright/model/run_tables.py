"""One road from a run to a Trace: simulator, simulated jobs, real ranks and live jobs all write their tables here.

A ``TraceWriter`` knows who writes (``source``) and by which clock; what every row of a run has in common stands here once, so
that a measured and a simulated run differ in their numbers, not in which columns they fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.ground.trace_tables import conform
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.program import Program

# The source of schedules on real ranks. Their calls begin when the last rank has handed its own in (``enqueue_s``): a rank that
# is early waits before a call, and not within it.
LIVE = "live"
# The source of the calls of simulated jobs, which begin so too.
SIMULATED_JOB = "simulated-job"
HANDED_IN = (LIVE, SIMULATED_JOB)


@dataclass(frozen=True)
class TraceWriter:
    """Who writes a Trace (``source``, as in the column), and the clock domain of its times."""

    source: str
    clock: str

    def events(self, columns: Mapping[str, Any] | pl.DataFrame, **same: Any) -> pl.DataFrame:
        """Return rows of ``events``: ``columns`` hold a value for each row, ``same`` one value for all rows.

        Where neither says otherwise, a row stands for one event of one record, read, with a confidence of 1. Times are in s.
        """
        import polars as pl

        usual = {
            "multiplicity": 1,
            "records": 1,
            "clock": self.clock,
            "source": self.source,
            "ground": "read",
            "confidence": 1.0,
        }
        frame = columns if isinstance(columns, pl.DataFrame) else pl.DataFrame(columns)
        missing = {name: value for name, value in (usual | same).items() if name not in frame.columns}
        return conform("events", frame.with_columns(pl.lit(value).alias(name) for name, value in missing.items()))

    def collectives(self, program: Program, **columns: Any) -> pl.DataFrame:
        """Return one run of a program: a row for each rank of its group; ``columns`` hold its times in seconds."""
        collective = program.collective
        ranks = {"rank": list(collective.group), "comm_rank": list(range(collective.p))}
        return self.events(
            {**ranks, **{name: _each(value, collective.p) for name, value in columns.items()}},
            kind="collective",
            op=collective.op,
            task=program.name,
            communicator=0,
            nranks=collective.p,
            sequence=0,
            datatype=collective.dtype,
            size_bytes=collective.size_bytes,
            reduce_op=collective.reduce_op if collective.reduces else None,
            root=collective.root,
            algorithm=str(program.knobs.get("algorithm") or program.name),
            channels=program.channels,
        )

    def claims(self, rows: Iterable[tuple[str, str, str]], assumed: str) -> pl.DataFrame:
        """Return rows of ``claims`` of (field, value, note); those of the field ``assumed`` are assumed, the others read."""
        import polars as pl

        fields, values, notes = map(list, zip(*rows, strict=True))
        return pl.DataFrame(
            {
                "field": fields,
                "value": values,
                "note": notes,
                "source": [self.source] * len(fields),
                "ground": ["assumed" if name == assumed else "read" for name in fields],
                "confidence": [1.0] * len(fields),
            }
        )

    def trace(self, world: int, summary: str, asked: Mapping[str, Any] | None = None, **tables: pl.DataFrame) -> Trace:
        """Return the Trace of ``world`` ranks; ``asked``: what a simulation was asked."""
        meta = {"source": self.source, "world": world, "summary": summary}
        return Trace.of(tables, meta if asked is None else meta | {"asked": dict(asked)})


def communicator(
    members: Sequence[int], *, comm_id: str, name: str, role: str = "world", number: int = 0
) -> dict[str, Any]:
    """Return a row of ``communicators`` of a group that is known whole; ``members`` are global ranks in order."""
    return {
        "communicator": number,
        "comm_id": comm_id,
        "name": name,
        "size": len(members),
        "members": list(members),
        "ranks_seen": len(members),
        "role": role,
        "ground": "read",
        "confidence": 1.0,
    }


def communicators(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the table of ``communicator`` rows, empty for none."""
    import polars as pl

    return pl.DataFrame(rows, schema_overrides={"members": pl.List(pl.Int32)}) if rows else pl.DataFrame()


def devices(ranks: Sequence[int], hosts: Sequence[str], numbers: Sequence[int] | None = None) -> pl.DataFrame:
    """Return rows of ``topology``: the host of each rank and, with ``numbers``, which device of its host it is."""
    import polars as pl

    columns: dict[str, Any] = {"kind": ["device"] * len(ranks), "rank": list(ranks), "host": list(hosts)}
    if numbers is not None:
        columns["device"] = list(numbers)
    return pl.DataFrame({**columns, "ground": ["read"] * len(ranks)})


def _each(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] * count
