"""Which rank died first, and of what: the others fail because it is gone.

A rank's end is recorded by the rank itself (an exception, an exit code) or by its parent (a signal). Two kinds of ranks are not
blamed: one whose own call failed because a peer was gone ("connection closed by peer"), and one that its launcher ended with
SIGTERM after another had failed.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ringwright.analysis.document import Culprit
from ringwright.analysis.hangs.hang_mismatch import say_ranks

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

KIND = "rank-died"
TOGETHER_S = 2.0  # between deaths of the same error, which is then the program's
FROM_OUTSIDE = (1, 2, 15)  # SIGHUP, SIGINT, SIGTERM: a terminal's or a launcher's word
SIGKILL = 9
OUT_OF_MEMORY = "dmesg -T | grep -i 'killed process'"
IN_ORDER = "ended in order"
_MOST_SHOWN = 4

_PEER_WORDS = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "ncclremoteerror",
    "distbackenderror",
    "socket timeout",
    "connection refused",
    "timed out waiting",
)


class _Death(NamedTuple):
    rank: int
    host: str | None
    at_s: float
    text: str
    where: str
    how: str
    code: int | None


def died(trace: Trace) -> list[Culprit]:
    """Return the rank that died first (or all, where all died of the same), as one culprit; none where nobody did.

    Where nobody says so, a rank whose recording stops without an end, or that left before the others, is named with less
    confidence, if others failed and the job has ended.
    """
    deaths, ends = _deaths(trace), _ends(trace)
    failed = _failed_calls(trace)
    ended_s = min((one.at_s for one in deaths if one.how == "signal" and one.code in FROM_OUTSIDE), default=math.inf)
    victims = {one.rank for one in deaths if _is_victim(one, failed, ended_s)}
    first = sorted((one for one in deaths if one.rank not in victims), key=lambda one: (one.at_s, one.rank))
    if first:
        alike = [one for one in first if one.text == first[0].text and one.at_s - first[0].at_s <= TOGETHER_S]
        named = alike if len(alike) * 2 > len(ends) else first[:1]
        return [_culprit(trace, named, [one for one in deaths if one.rank in victims], failed)]
    # Who was ended from outside had not failed: it may have waited, and why is then for the analysis of hangs.
    broken = {one.rank for one in deaths if one.rank in victims and one.how != "signal"} | set(failed)
    return _silent(trace, ends, broken, failed) if broken and _is_over(trace) else []


def _deaths(trace: Trace) -> list[_Death]:
    import polars as pl

    mine = trace.scan("events").filter(
        (pl.col("kind") == "error") & (pl.col("op") == "died") & pl.col("rank").is_not_null()
    )
    rows = mine.select("rank", "host", "start_s", "text", "file", "line", "task", "code").collect().rows()
    return [
        _Death(rank, host, start_s or 0.0, text or "", f"{file}:{line}", json.loads(task or "{}").get("how", ""), code)
        for rank, host, start_s, text, file, line, task, code in rows
    ]


def _ends(trace: Trace) -> dict[int, str]:
    """Return rank -> how its recording ends."""
    import polars as pl

    mine = trace.scan("events").filter((pl.col("kind") == "status") & (pl.col("op") == "ended"))
    return dict(mine.filter(pl.col("rank").is_not_null()).select("rank", "text").collect().rows())


def _failed_calls(trace: Trace) -> dict[int, list[str]]:
    import polars as pl

    mine = trace.scan("events").filter((pl.col("kind") == "error") & (pl.col("op") == "exception"))
    calls: dict[int, list[str]] = defaultdict(list)
    for rank, text in mine.filter(pl.col("rank").is_not_null()).select("rank", "text").collect().rows():
        calls[rank].append(text or "")
    return dict(calls)


def _is_victim(one: _Death, failed: dict[int, list[str]], ended_s: float) -> bool:
    """Whether a rank's end follows from something else: ``ended_s`` is when the first was asked to end."""
    if one.how == "signal":
        return one.code in FROM_OUTSIDE or (one.code == SIGKILL and one.at_s > ended_s)
    if one.text.startswith("KeyboardInterrupt"):
        return True
    text = one.text.lower()
    if any(words in text for words in _PEER_WORDS):
        return True
    return any(one.text[:120] == each[:120] for each in failed.get(one.rank, ()))


def _is_over(trace: Trace) -> bool:
    return bool((trace.table("claims")["field"] == "job ended at").any())


def _silent(trace: Trace, ends: dict[int, str], broken: set[int], failed: dict[int, list[str]]) -> list[Culprit]:
    """Return who is gone without a word, else who left before the others; at most half of the ranks."""
    gone = [rank for rank, how in ends.items() if not how.startswith(IN_ORDER) and rank not in broken]
    left = [rank for rank, how in ends.items() if how.startswith(IN_ORDER) and rank not in broken]
    for ranks, what, sure in (
        (gone, "stopped without a word: killed by a signal, or left at once", 0.7),
        (left, "left before the others were done", 0.6),
    ):
        if ranks and len(ranks) * 2 <= len(ends):
            deaths = [_Death(rank, None, 0.0, what, "", "", None) for rank in sorted(ranks)]
            return [{**_culprit(trace, deaths, [], failed), "confidence": sure}]
    return []


def _culprit(trace: Trace, named: list[_Death], victims: list[_Death], failed: dict[int, list[str]]) -> Culprit:
    ranks = sorted(one.rank for one in named)
    first = named[0]
    step = _step(trace, first.rank)
    where = f" in step {step}" if step is not None else ""
    told = " died" if first.how else ""
    evidence = [f"{say_ranks(ranks)}{told}{where}: {first.text}" + (f" ({first.where})" if first.where else "")]
    evidence += [f"{one.where}: rank {one.rank}: {one.text}" for one in named[1:_MOST_SHOWN]]
    hit = sorted(({one.rank for one in victims} | set(failed)) - set(ranks))
    if hit:
        what = next((text for rank in hit for text in failed.get(rank, [])), "ended by the launcher")
        evidence.append(f"{say_ranks(hit)} failed because of it: {what}")
    hosts = sorted({one.host for one in named if one.host})
    culprit: Culprit = {
        "ranks": ranks,
        "hosts": hosts,
        "kind": KIND,
        "confidence": 0.95,
        "evidence": evidence,
        "begin_step": step,
    }
    if first.how == "signal" and first.code == SIGKILL:
        culprit["command"] = OUT_OF_MEMORY
    return culprit


def _step(trace: Trace, rank: int) -> int | None:
    """Return the iteration in which the rank's last call was made, where iterations are told."""
    import polars as pl

    events = trace.scan("events").filter((pl.col("rank") == rank) & pl.col("iteration").is_not_null())
    last = (
        events.filter(pl.col("kind").is_in(["collective", "p2p", "step"])).select(pl.col("iteration").max()).collect()
    )
    has_steps = events.filter(pl.col("kind") == "step").head(1).collect().height
    return int(last.item()) if has_steps and last.item() is not None else None
