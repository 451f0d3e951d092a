"""Transfers from a Trace that holds calls: who sends what in a call follows from its algorithm, as in the traffic matrix.

Where connections name NICs, the bytes of a call go over the NICs of its edges between hosts; else a rank stands for its NIC, and
all that it sends counts, save in groups that lie within one host. A call without a duration has a beginning only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ringwright.analysis.pairs import paths_of
from ringwright.analysis.traffic.burst_clocks import is_time, lasts, on_one_clock
from ringwright.analysis.traffic.call_edges import call_edges
from ringwright.analysis.traffic.traffic_over_time import COARSE_TICK_S, moves
from ringwright.analysis.traffic.transfers import BY_NIC, BY_RANK, Transfers
from ringwright.ground.units import format_size

if TYPE_CHECKING:
    import polars as pl

    from ringwright.analysis.pairs import Paths
    from ringwright.model.trace import Trace

MOST_CALLS = 2_000_000
_COLUMNS = (
    *("kind", "op", "rank", "comm_rank", "rank_class", "communicator", "nranks", "peer", "size_bytes", "root"),
    *("enqueue_s", "start_s", "duration_s", "phase", "iteration", "clock"),
)
_WHOLE_CALLS = (
    "a call sends from its beginning to its end, to all its receivers at once: waiting for its group counts as sending, so "
    "durations, duty and incast are upper bounds and gaps lower ones"
)
_REQUESTS = (
    "calls as they were handed in: how long each sent is not in the input, so duty, durations and incast are not known, gaps run "
    "from beginning to beginning (upper bounds), and what was handed in together may have moved one after another"
)


def call_transfers(trace: Trace, host_of: Mapping[int, str]) -> Transfers | None:
    """Return the transfers of a Trace's calls; None where no call has a time."""
    calls, limits, has_ends = _calls(trace)
    if not calls.height:
        return None
    timed = on_one_clock(calls, trace)
    limits += [said for said in (timed.said if has_ends else _coarse(calls),) if said]
    paths = paths_of(trace)
    sized = _of_known_groups(timed.frame, trace, limits)
    frame, assumed = call_edges(sized, trace, paths)
    limits += [f"who sends to whom is assumed: {assumed}"] if assumed else []
    placed = _on_nics(frame, paths, host_of, limits)
    of = BY_NIC if placed is not None else BY_RANK
    frame = _on_ranks(frame, paths, host_of, limits) if placed is None else placed
    receivers = None
    if has_ends and timed.is_one and frame["receiver"].null_count() == 0:
        receivers = _of_callers(frame, sized, limits)
    return Transfers(
        _senders(frame),
        frame["start_s" if has_ends else "enqueue_s"].to_list(),
        frame["share"].to_list(),
        (frame["start_s"] + frame["duration_s"]).to_list() if has_ends else None,
        receivers,
        frame["phase"].to_list(),
        frame["iteration"].to_list(),
        of,
        f"{_scope(of, host_of)}: {_WHOLE_CALLS if has_ends else _REQUESTS}",
        tuple(limits),
        timed.window_s if has_ends else None,
    )


def _of_known_groups(calls: pl.DataFrame, trace: Trace, limits: list[str]) -> pl.DataFrame:
    """Return the calls without the sizes of those in groups of which one rank was seen, and nobody says that there is one."""
    import polars as pl

    groups = trace.scan("communicators").filter((pl.col("ground") == "assumed") & (pl.col("size") == 1))
    alone = groups.select("communicator").collect()["communicator"].to_list()
    unknown = (pl.col("kind") == "collective") & pl.col("nranks").is_null() & pl.col("communicator").is_in(alone)
    count = calls.select(unknown.fill_null(value=False).sum()).item()
    if not count:
        return calls
    limits.append(f"how many ranks take part in {count:,} calls is not known, and so what they send")
    return calls.with_columns(size_bytes=pl.when(unknown).then(None).otherwise("size_bytes"))


def _of_callers(frame: pl.DataFrame, calls: pl.DataFrame, limits: list[str]) -> list[Any] | None:
    """Return the receivers whose own calls are in the input; of the others not all that send to them are seen."""
    callers = set(calls["rank"].drop_nulls())
    if not callers:
        return frame["receiver"].to_list()
    silent = set(frame["dst_rank"].drop_nulls()) - callers
    known = [None if rank in silent else receiver for receiver, rank in frame.select("receiver", "dst_rank").rows()]
    any_known = any(each is not None for each in known)
    if silent:
        incast = "incast is a lower bound" if any_known else "incast is not known"
        limits.append(f"ranks that wrote no call: {len(silent):,}; what they send is not in the figures, {incast}")
    return known if any_known else None


def _scope(of: str, host_of: Mapping[int, str]) -> str:
    if of == BY_NIC:
        return "what a NIC sends to other hosts"
    known = len({host for host in host_of.values() if host}) > 1
    return "all that a rank sends in groups of several hosts" if known else "all that a rank sends, to its own host too"


def _calls(trace: Trace) -> tuple[pl.DataFrame, list[str], bool]:
    """Return the calls with times, what others lack, and whether their ends are known."""
    import polars as pl

    calls = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"]) & moves()).select(_COLUMNS)
    has_end = lasts()
    began = pl.when(is_time("enqueue_s")).then("enqueue_s").when(is_time("start_s")).then("start_s")
    calls = calls.with_columns(pl.when(pl.col("size_bytes") >= 0).then("size_bytes"))
    total, with_ends, with_times = (
        calls.select(pl.len(), has_end.sum().alias("ends"), began.is_not_null().sum().alias("times")).collect().row(0)
    )
    has_ends = with_ends > 0
    chosen = calls.filter(has_end) if has_ends else calls.filter(began.is_not_null()).with_columns(enqueue_s=began)
    count = with_ends if has_ends else with_times
    limits = []
    if count < total:
        limits.append(f"{total - count:,} of {total:,} calls have no {'duration' if has_ends else 'time'}: left out")
    if count > MOST_CALLS:
        chosen = chosen.sort("start_s" if has_ends else "enqueue_s").head(MOST_CALLS)
        limits.append(f"only the first {MOST_CALLS:,} of {count:,} calls were looked at")
    return chosen.collect(), limits, has_ends


def _coarse(calls: pl.DataFrame) -> str:
    """Return that the clock is coarse, where most calls share an instant with another."""
    import numpy as np

    apart = np.diff(np.sort(calls["enqueue_s"].to_numpy()))
    tick_s = float(apart[apart > 0].min(initial=np.inf))
    if not len(apart) or np.median(apart) > 0 or not COARSE_TICK_S <= tick_s < np.inf:
        return ""
    return f"the clock ticks every {tick_s:.3g} s: calls of one tick are one burst, whatever their pauses"


def _on_nics(
    frame: pl.DataFrame, paths: Mapping[int, Paths], host_of: Mapping[int, str], limits: list[str]
) -> pl.DataFrame | None:
    """Return the transfers between hosts by NIC; None where no connection names one."""
    import polars as pl

    parts: dict[tuple[int, int, int, str, str | None], float] = defaultdict(float)
    for number, path in paths.items():
        for (src, dst), sides in path.nics.items():
            if max(src, dst) >= len(path.members):
                continue
            hosts = [host_of.get(path.members[end]) for end in (src, dst)]
            sent, came = sides.get("send", []), sides.get("receive", [])
            if all(hosts) and hosts[0] != hosts[1]:
                arrives = came if len(came) == len(sent) else [None] * len(sent)
                for nic, other in zip(sent, arrives, strict=True):
                    to = None if other is None else f"{hosts[1]}/{other}"
                    parts[number, src, dst, f"{hosts[0]}/{nic}", to] += 1 / len(sent)
    rows = [(*key, part) for key, part in parts.items()]
    if not rows:
        return None
    kinds = {"communicator": pl.Int32, "src": pl.Int32, "dst": pl.Int32}
    nics = pl.DataFrame(
        rows, schema={**kinds, "sender": pl.String, "receiver": pl.String, "part": pl.Float64}, orient="row"
    )
    edge = ["communicator", "src", "dst"]
    joined, unnamed = frame.join(nics, on=edge), frame.join(nics, on=edge, how="anti")
    if not joined.height:
        return None
    lost, between = (_between_bytes(each, host_of) for each in (unnamed, frame))
    if lost:
        what = f"{format_size(lost)} of {format_size(between)} between hosts"
        limits.append(f"no connection names the NIC of {what}: left out")
    return joined.with_columns(pl.col("share") * pl.col("part"))


def _on_ranks(
    frame: pl.DataFrame, paths: Mapping[int, Paths], host_of: Mapping[int, str], limits: list[str]
) -> pl.DataFrame:
    """Return the transfers by rank, without those of groups that lie within one host."""
    import polars as pl

    if len({host for host in host_of.values() if host}) > 1:
        at_home = [
            number
            for number, path in paths.items()
            if path.members and len(hosts := {host_of.get(rank) for rank in path.members}) == 1 and None not in hosts
        ]
        inside = pl.col("communicator").is_in(at_home).fill_null(value=False)
        count = frame.filter(inside).height
        if count:
            limits.append(f"{count:,} transfers of groups within one host are left out: they use no NIC")
        frame = frame.filter(~inside)
    return frame.with_columns(receiver="dst_rank")


def _senders(frame: pl.DataFrame) -> list[Any]:
    """Return who sends each transfer: a NIC or a rank, or a label where it is neither."""
    if "sender" in frame.columns:
        return frame["sender"].to_list()
    ranks = frame["src_rank"].to_list()
    if frame["src_rank"].null_count():
        return [label if rank is None else rank for rank, label in zip(ranks, frame["label"], strict=True)]
    return ranks


def _between_bytes(frame: pl.DataFrame, host_of: Mapping[int, str]) -> float:
    """Return the bytes that are not known to stay within a host."""
    import polars as pl

    ends = ("src_rank", "dst_rank")
    src, dst = (pl.col(end).replace_strict(dict(host_of), default=None, return_dtype=pl.String) for end in ends)
    total: float = frame.filter((src == dst).fill_null(value=False).not_()).select(pl.col("share").sum()).item()
    return total
