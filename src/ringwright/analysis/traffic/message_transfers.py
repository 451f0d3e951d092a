"""Transfers from a Trace that holds messages: a simulated or executed program, a recording of NCCL's proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringwright.analysis.traffic.burst_clocks import lasts, on_one_clock
from ringwright.analysis.traffic.transfers import Transfers
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

READ = "each message from its beginning to its end"
FOLDED = "a message stands for several equal ones, of which nobody says whose they are"
UNFOLD = "fewer ranks or a smaller size, so that each message is simulated by itself"


def message_transfers(trace: Trace, host_of: Mapping[int, str]) -> Transfers | None:
    """Return the messages of a Trace, those between hosts where several hosts are known; None for a Trace without messages.

    DeclinedError where the messages were folded.
    """
    import polars as pl

    sends = (pl.col("kind") == "proxy") & (pl.col("op") != "step") & (pl.col("sent_bytes") > 0)
    timed = lasts() & pl.col("peer").is_not_null()
    columns = (
        *("rank", "comm_rank", "communicator", "peer", "sent_bytes"),
        *("enqueue_s", "start_s", "duration_s", "multiplicity", "phase", "clock"),
    )
    frame = trace.scan("events").filter(sends & timed).select(columns).collect()
    if not frame.height:
        return None
    if (frame["multiplicity"].fill_null(1) > 1).any():
        raise DeclinedError(FOLDED, remedy=UNFOLD)
    frame = _global_ranks(frame, trace)
    unknown = frame.filter(pl.any_horizontal(pl.col("src", "dst").is_null())).height
    frame = frame.drop_nulls(["src", "dst"])
    limits = [f"{unknown:,} messages of unknown ranks are left out"] if unknown else []
    frame, scope = _between_hosts(frame, host_of)
    clocked = on_one_clock(frame, trace)
    limits += [clocked.said] if clocked.said else []
    frame = clocked.frame
    return Transfers(
        frame["src"].to_list(),
        frame["start_s"].to_list(),
        frame["sent_bytes"].to_list(),
        (frame["start_s"] + frame["duration_s"]).to_list(),
        frame["dst"].to_list() if clocked.is_one else None,
        frame["phase"].to_list(),
        ground=f"{scope}: {READ}",
        limits=tuple(limits),
        window_s=clocked.window_s,
    )


def _global_ranks(frame: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return messages with ``src`` and ``dst``, global ranks: a message that names no rank of its group names global ones."""
    import polars as pl

    listed = trace.table("communicators").select("communicator", pl.col("members").alias("of"))
    frame = frame.join(listed, on="communicator", how="left")

    def member(name: str) -> pl.Expr:
        number = pl.col("of").list.get(pl.col(name), null_on_oob=True)
        return pl.when(number >= 0).then(number)

    is_global = pl.col("comm_rank").is_null()
    return frame.with_columns(
        src=pl.coalesce("rank", member("comm_rank")), dst=pl.when(is_global).then("peer").otherwise(member("peer"))
    )


def _between_hosts(frame: pl.DataFrame, host_of: Mapping[int, str]) -> tuple[pl.DataFrame, str]:
    """Return the messages of ranks that leave a host, all where not several hosts are known, and which these are."""
    import polars as pl

    if host_of:
        frame = frame.filter(pl.col("src").is_in(list(host_of)))  # what a switch sends is no NIC's burst
        frame = frame.with_columns(pl.when(pl.col("dst").is_in(list(host_of))).then("dst").alias("dst"))
    if len({host for host in host_of.values() if host}) < 2:
        return frame, "all that a rank sends"
    hosts = {
        name: pl.col(name).replace_strict(dict(host_of), default=None, return_dtype=pl.String)
        for name in ("src", "dst")
    }
    return frame.filter(hosts["src"].ne_missing(hosts["dst"])), "what a rank sends to other hosts"
