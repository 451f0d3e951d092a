"""Fit a calibration to tables of nccl-tests, and report the error of each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ringwright.calls import arguments
from ringwright.calls.call_answer import answered, laid_out
from ringwright.calls.library_calls import LIBRARY
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.costs.calibration import SCHEMA, Calibration, MeasuredTimes, calibrated, fit, times_s
from ringwright.costs.learnt.table_machine import forced, named_release
from ringwright.costs.transports import carrier
from ringwright.formats.sources.tables.nccl_tests import read_tables
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.costs.probable_time import Probable


@dataclass(frozen=True)
class Size:
    """One measured size beside its closed form, and beside what ``simulate`` answers with the calibration (None: nothing)."""

    table: str
    op: str
    size_bytes: int
    measured_s: float
    simulated_s: float
    said: Probable | None = None


def calibrate(
    paths: Sequence[str],
    fabric: str,
    *,
    release: str | None = None,
    collective: str | None = None,
    name: str = "",
    source: str = "",
    date: str = "",
    transport: str = "",
    system: str = "",
) -> tuple[Calibration, list[Size]]:
    """Fit latency, message cost and rate of each link class to tables of nccl-tests.

    Parameters
    ----------
    paths
        Output of nccl-tests or rccl-tests, JSON lines of mscclpp, or ``nccl_times.csv``; several give one calibration.
    fabric
        Box and nodes: ``dgx-a100:2``; ``{n}`` is the nodes that a table names.
    release, collective
        NCCL's release and the operation, where the tables do not name them.
    name, source, date
        What to call the calibration, where the tables come from, when they were measured.
    transport
        What joins the nodes (``infiniband``, ``roce``, ``efa``, ``slingshot``, ``tcp``), where the tables do not name it.
    system
        Which of several systems, where the tables (``*_times.csv`` beside ``*_cases.csv``) name them.

    Returns
    -------
    Calibration
        Seconds and bytes/s per link class, and how far off it is. ``costs.calibration.calibrated(topology, it)`` puts it
        on a machine.
    list of Size
        Every size: measured and simulated seconds.

    Raises
    ------
    UsageError
        No table, or one that does not say its operation or release.
    InputError
        A file that is no table.

    Examples
    --------
    >>> import json, pathlib, tempfile, ringwright
    >>> times_us = {1 << 10: 12.0, 1 << 20: 45.0, 1 << 24: 130.0, 1 << 28: 1_250.0}
    >>> rows = [{"name": "allreduce", "ranks": 8, "size": size, "time": us} for size, us in times_us.items()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pathlib.Path(folder) / "times.jsonl"
    ...     _ = table.write_text(chr(10).join(map(json.dumps, rows)))
    ...     fitted, sizes = ringwright.calibrate([str(table)], "dgx-h100:1", release="2.18", collective="all-reduce")
    >>> fitted.inside.rate_bytes_per_s > 1e9, len(sizes)
    (True, 4)
    """
    if not paths:
        raise UsageError("no table is named", remedy="ringwright calibrate TABLE --fabric dgx-a100:2")
    tables, over = _over(_of_system(read_tables([*paths]), system), transport)
    measured = [_measured(table, fabric, release, collective) for table in tables]
    described = (source or ", ".join(dict.fromkeys(table.name for table in tables))) + _refused(tables)
    calibration = fit(measured, name=name, source=described, date=date, transport=over)
    sizes = [
        Size(table.name, part.op, size, time, float(simulated), said.get(size))
        for table, part in zip(tables, measured, strict=True)
        for said in (_answered(calibration, part),)
        for size, time, simulated in zip(part.sizes_bytes, part.times_s, times_s(calibration, part), strict=True)
    ]
    return calibration, sizes


def _answered(calibration: Calibration, part: MeasuredTimes) -> dict[int, Probable]:
    """Return what ``simulate --calibration`` answers at the sizes of a table; nothing where no fabric is made of its nodes."""
    try:
        top, group = laid_out(part.fabric)
    except UsageError:
        return {}
    on = calibrated(top, calibration)
    question = SimulationSpec(part.op, on, group=group, healthy=on, calibration=calibration)
    knobs = {} if part.forced is None else asdict(part.forced)
    given = ":".join(f"{name}={value}" for name, value in knobs.items() if value)
    spelling = f"{LIBRARY}@{part.release}" + (f":{given}" if given else "")
    return answered(arguments.algorithm(spelling), question, part.sizes_bytes)


def _of_system(tables: Sequence[NcclTestsTable], system: str) -> list[NcclTestsTable]:
    """Return the tables of one system; UsageError where there are several and none is named, or it has no table."""
    named = list(dict.fromkeys(table.facts.get("system", "") for table in tables))
    known = ", ".join(filter(None, named))
    if system and system not in named:
        raise UsageError(
            f"no table is of system '{system}'", remedy=f"one of: {known}" if known else "leave --system out"
        )
    if not system and len(named) > 1:
        raise UsageError(
            f"the tables are of {len(named)} systems: {known}", remedy=f"--system '{named[0] or named[1]}'"
        )
    return [table for table in tables if not system or table.facts.get("system") == system]


def _over(tables: Sequence[NcclTestsTable], transport: str) -> tuple[list[NcclTestsTable], str]:
    """Return the tables over one transport and its name, empty where none is named; UsageError where there are several."""
    words = [f"{table.facts.get('settings', '')} {table.facts.get('inter_node', '')}" for table in tables]
    names = [carrier(each, "") if table.nodes != 1 else "" for each, table in zip(words, tables, strict=True)]
    known = list(dict.fromkeys(filter(None, names)))
    if not transport and len(known) > 1:
        raise UsageError(
            f"the tables are of {' and '.join(known)}", remedy=f"--transport {known[0]}, which takes its tables"
        )
    wanted = transport or (known[0] if known else "")
    held = [table for table, name in zip(tables, names, strict=True) if name in ("", wanted) or wanted not in known]
    return held, wanted


def refused_rows(tables: Sequence[NcclTestsTable]) -> list[str]:
    """Return the rows of tables that a law refused, each with its place, law and reason."""
    return [f"{table.name}:{row.line} law {row.law}: {row.detail}" for table in tables for row in table.refused]


def _refused(tables: Sequence[NcclTestsTable]) -> str:
    """Return how many rows laws refused and the first of them; the fit knows nothing of these."""
    told = refused_rows(tables)
    return f"; refused {len(told)}, first {told[0]}" if told else ""


def _measured(table: NcclTestsTable, fabric: str, release: str | None, collective: str | None) -> MeasuredTimes:
    op, facts = collective or table.op, table.facts
    chosen = release or table.release or named_release(facts.get("software", ""))
    if not op:
        raise UsageError("the table does not say its operation", where=table.name, remedy="--collective all-reduce")
    if not chosen:
        raise UsageError("the table does not say NCCL's release", where=table.name, remedy="--release 2.18")
    rows = [row for row in table.rows if row.size_bytes > 0]
    return MeasuredTimes(
        op,
        fabric.replace("{n}", str(max(table.nodes, 1))),
        chosen,
        tuple(row.size_bytes for row in rows),
        tuple(row.steady_s for row in rows),
        forced(facts.get("settings", ""), op),
    )


def document(calibration: Calibration) -> dict[str, Any]:
    """Return the object of schema ``ringwright.calibration/1``."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(calibration)
    return {"schema": SCHEMA, **fields}
