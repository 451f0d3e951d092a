"""From trace files of one job to a Trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.gate.packed import parsed
from ringwright.formats.sources.gate.temporary import ROWS_IN_MEMORY, Store
from ringwright.formats.sources.kineto import catalogue as kernels_catalogue
from ringwright.formats.sources.kineto.columns import RankFile
from ringwright.formats.sources.kineto.event_batches import gather
from ringwright.formats.sources.kineto.findings import KinetoFindings
from ringwright.formats.sources.kineto.frames import Calendar, device_rows, first_moment, host_rows, operations
from ringwright.formats.sources.kineto.groups import KinetoCommunicators
from ringwright.formats.sources.kineto.operations import link
from ringwright.formats.sources.kineto.part import TraceFile
from ringwright.formats.sources.kineto.ranks import place, settle
from ringwright.formats.sources.kineto.sequences import Numbered, number
from ringwright.formats.sources.kineto.tables import communicators, devices
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.ground.trace_tables import conformed, rows
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    import polars as pl

KIND = "kineto"
_EPOCH_US = 100_000_000_000_000  # times beyond are counted from 1970, those below from the start of something


def read_kineto(
    sources: list[Source], *, progress: Callable[[int], None] | None = None, kernels: str | Path | None = None
) -> Trace:
    """Return the Trace of PyTorch profiler traces, one file per rank as a rule, all of one job.

    ``progress`` is called with the bytes of each block. ``kernels`` names a file with further rules for communication
    kernels, as the environment variable RINGWRIGHT_KERNELS does. Memory is bounded: beyond two million rows those that
    are no operations wait in a temporary folder. Raises InputError when no file holds a single usable event.
    """
    catalogue = kernels_catalogue.load(kernels)
    findings, groups, store = KinetoFindings(), KinetoCommunicators(), Store(ROWS_IN_MEMORY)
    parts: list[TraceFile] = []
    for source in sources:
        try:
            rank_file = parsed(source, gather, progress)
        except (OSError, RingwrightError) as error:
            findings.unreadable(source.name, str(error).split("\n", 1)[0])
            continue
        findings.file(rank_file)
        if rank_file.used:
            parts.append(_part(rank_file, len(parts), catalogue, groups, findings, store))
    if not parts:
        raise InputError(
            "no usable event in any trace: " + ("; ".join(findings.losses[:3]) or "they hold none"),
            where=", ".join(source.name for source in sources[:3]),
            remedy="export with torch.profiler's export_chrome_trace, then ringwright summary FILE",
        )
    return _trace(sources, parts, groups, findings, store)


def _part(
    rank_file: RankFile,
    index: int,
    catalogue: kernels_catalogue.Catalogue,
    groups: KinetoCommunicators,
    findings: KinetoFindings,
    store: Store,
) -> TraceFile:
    import polars as pl

    where = place(rank_file, index)
    linked = link(rank_file, catalogue, is_amd=_is_amd(rank_file))
    info = rank_file.reading.header.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    mine = groups.of_file(config, (op.facts for op in linked.operations))
    for group in mine.named:
        group.files.add(index)
    calendar, zero = Calendar(rank_file), first_moment(rank_file)
    asked, _ = operations(rank_file, linked, mine, calendar, zero, index)
    rest = pl.concat(
        [device_rows(rank_file, linked, calendar, zero), host_rows(rank_file, calendar, zero)], how="diagonal"
    )
    findings.links(rank_file, linked)
    findings.variables(rank_file)
    return TraceFile(
        rank_file.reading.name, where, _wall_ns(rank_file, zero), asked, store.keep(rest), rank_file.reading.header
    )


def _is_amd(rank_file: RankFile) -> bool:
    """Whether the device is AMD's: its library uses NCCL's names."""
    listed = rank_file.reading.header.get("deviceProperties")
    names = [
        str(entry.get("name")) for entry in (listed if isinstance(listed, list) else []) if isinstance(entry, dict)
    ]
    calls = {rank_file.names[name] for name in rank_file.calls.name[:1000]}
    return any("AMD" in name or "Instinct" in name for name in names[:8]) or any(n.startswith("hip") for n in calls)


def _wall_ns(rank_file: RankFile, zero: int) -> int | None:
    base = rank_file.reading.header.get("baseTimeNanoseconds")
    if type(base) is int and 0 < base < 1 << 62 and abs(zero) < _EPOCH_US:
        return base + zero * 1000
    return zero * 1000 if _EPOCH_US < zero < 1 << 53 else None


def _trace(
    sources: list[Source], parts: list[TraceFile], groups: KinetoCommunicators, findings: KinetoFindings, store: Store
) -> Trace:
    import polars as pl

    places = [part.origin for part in parts]
    for note in settle(places):
        findings.claim("rank", "contradiction", "distributedInfo", "inferred", 0.5, note)
    findings.ranks(parts)
    walls = [part.wall_ns for part in parts if part.wall_ns is not None]
    origin = min(walls, default=None)
    findings.clocks(len(walls), len(parts))
    world = max((where.world for where in places if where.world), default=None)
    table = communicators(groups, places, world)
    mixed = {group.number for group in groups.groups.values() if group.is_mixed}
    numbered = number([part.operations for part in parts], mixed)
    findings.groups(groups, numbered)
    finished = [_finish(part, i, numbered, table, origin).lazy() for i, part in enumerate(parts)]
    others = [_constants(part, part.rest, origin) for part in parts]
    frames = {
        "communicators": table,
        "topology": rows("topology", devices(places)),
        "claims": rows("claims", findings.claims),
        "ledger": rows("ledger", findings.ledger),
    }
    lost = Trace.of(frames, _meta(sources, parts, findings, world, origin))
    events = pl.concat([conformed("events", frame) for frame in (*finished, *others)])
    return Trace({**lost.tables, "events": events}, lost.meta, held=store.folder)


def _finish(part: TraceFile, file: int, numbered: Numbered, table: pl.DataFrame, origin: int | None) -> pl.DataFrame:
    import polars as pl

    counted = pl.lit(pl.Series(numbered.counted[file], dtype=pl.Boolean))
    is_known = pl.col("confidence") > (0.3 if part.origin.world is None else 0)
    sizes = dict(table.select("communicator", pl.when(is_known).then(pl.col("size"))).rows())
    ranks = dict(table.select("communicator", "members").rows())
    frame = part.operations.with_columns(
        pl.Series("sequence", numbered.sequences[file], dtype=pl.Int64),
        pl.when(counted & (pl.col("ground") == "read"))
        .then(pl.lit("inferred"))
        .otherwise(pl.col("ground"))
        .alias("ground"),
        pl.when(counted).then(pl.col("confidence") * 0.8).otherwise(pl.col("confidence")).alias("confidence"),
        pl.Series("nranks", [sizes[number] for number in part.operations["communicator"]], dtype=pl.Int32),
        pl.Series(
            "comm_rank", [_index(ranks[n], part.origin.rank) for n in part.operations["communicator"]], dtype=pl.Int32
        ),
    )
    done: pl.DataFrame = _constants(part, frame.lazy(), origin).collect()
    return done


def _index(members: list[int] | None, rank: int) -> int | None:
    return members.index(rank) if members and rank in members else None


def _constants(part: TraceFile, frame: pl.LazyFrame, origin: int | None) -> pl.LazyFrame:
    """Add what is the same for all rows of a file, and count times from the job's origin."""
    import polars as pl

    present = frame.collect_schema().names()
    shift = (part.wall_ns - origin) * 1e-9 if part.wall_ns is not None and origin is not None else 0.0
    moved = [pl.col(name) + shift for name in ("enqueue_s", "start_s") if name in present and shift]
    return frame.with_columns(
        *moved,
        pl.lit(part.origin.rank).alias("rank"),
        pl.lit(part.origin.host).alias("host"),
        pl.lit(f"host:rank{part.origin.rank}").alias("clock"),
        pl.lit(1).alias("multiplicity"),
        (pl.col("records") if "records" in present else pl.lit(1)).alias("records"),
        pl.lit(KIND).alias("source"),
        pl.lit(part.name).alias("file"),
    )


def _meta(
    sources: list[Source], parts: list[TraceFile], findings: KinetoFindings, world: int | None, origin: int | None
) -> dict[str, Any]:
    infos = [info for part in parts if isinstance(info := part.header.get("distributedInfo"), dict)]
    versions = sorted({str(info["nccl_version"])[:40] for info in infos if info.get("nccl_version")})
    return {
        "source": KIND,
        "inputs": [source.name for source in sources],
        "losses": findings.losses,
        "limits": findings.limits,
        "world": world,
        "nccl_versions": versions,
        "library": findings.library(infos),
        "origin_ns": origin,
    }
