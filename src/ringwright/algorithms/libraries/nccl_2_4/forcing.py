"""NCCL told what to run, as NCCL_ALGO, NCCL_PROTO and the channel limits do: what the release cannot do is refused.

A forced protocol may be one that the release leaves off by default, as LL128 is on some machines. What stays free is
chosen by the model among the combinations that are left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ringwright.costs.nccl import ALGORITHMS, PROTOCOLS, NcclChoice, NcclSystem, constants
from ringwright.costs.nccl.availability import not_forced
from ringwright.costs.nccl.selection import taken
from ringwright.ground.errors import UsageError

UNMODELLED = {"ring": ("ll", "simple"), "tree": ("ll", "simple")}  # of 2.4; its trees do all-reduce alone
MOST_CHANNELS_2_4 = 32


def is_2_4(release: str) -> bool:
    """Return whether this is release 2.4, which had no model."""
    return release.strip().lower().removeprefix("v").split(".")[:2] == ["2", "4"]


def forced(
    chosen: NcclChoice,
    system: NcclSystem,
    release: str,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    channels: int | None = None,
) -> NcclChoice:
    """Return the choice with what is forced, and for the rest what the release would take.

    Raises UsageError with the release's own reason where it has no such combination on the system.
    """
    most = MOST_CHANNELS_2_4 if is_2_4(release) else constants(release).rules.max_channels
    if channels is not None and not 1 <= channels <= most:
        raise UsageError(f"NCCL {release} has 1 to {most} channels, not {channels}", remedy=f"channels={most}")
    pair = (chosen.algorithm, chosen.protocol)
    if algorithm or protocol:
        pair = _pair(chosen, system, release, algorithm, protocol)
    return dataclasses.replace(
        chosen, algorithm=pair[0], protocol=pair[1], channels_used=channels or chosen.channels_used
    )


def _pair(
    chosen: NcclChoice, system: NcclSystem, release: str, algorithm: str | None, protocol: str | None
) -> tuple[str, str]:
    """Return the combination that the release would take of those that are left."""
    for names, name, kind in ((ALGORITHMS, algorithm, "algorithm"), (PROTOCOLS, protocol, "protocol")):
        if name is not None and name not in names:
            raise UsageError(f"NCCL has no {kind} '{name}'", remedy=f"{kind}= one of: {', '.join(names)}")
    allowed = [pair for pair in _pairs() if refusal(chosen.op, *pair, system, release) is None]
    left = [pair for pair in allowed if algorithm in (None, pair[0]) and protocol in (None, pair[1])]
    if not left:
        raise _refused(chosen, system, release, algorithm, protocol, allowed)
    if is_2_4(release):
        own = (chosen.algorithm, chosen.protocol)
        return own if own in left else min(left, key=lambda pair: pair[1] != "simple")
    return taken(chosen, left, system, release)


def _pairs() -> Iterator[tuple[str, str]]:
    return ((algorithm, protocol) for algorithm in ALGORITHMS for protocol in PROTOCOLS)


def refusal(op: str, algorithm: str, protocol: str, system: NcclSystem, release: str) -> str | None:
    """Say why a release cannot be forced to a combination on a system; None where it can."""
    if is_2_4(release):
        if protocol not in UNMODELLED.get(algorithm, ()):
            return f"NCCL 2.4 has no {algorithm} with {protocol}"
        return f"tree does not do {op} in NCCL 2.4" if algorithm == "tree" and op != "all-reduce" else None
    return not_forced(constants(release), system, op, algorithm, protocol)


def _refused(
    chosen: NcclChoice,
    system: NcclSystem,
    release: str,
    algorithm: str | None,
    protocol: str | None,
    allowed: list[tuple[str, str]],
) -> UsageError:
    wanted = [pair for pair in _pairs() if algorithm in (None, pair[0]) and protocol in (None, pair[1])]
    reason = next(filter(None, (refusal(chosen.op, *pair, system, release) for pair in reversed(wanted))), "")
    asked = " with ".join(each for each in (algorithm, protocol) if each)
    possible = dict.fromkeys(pair[0] for pair in allowed if protocol in (None, pair[1])) or dict.fromkeys(
        pair[0] for pair in allowed
    )
    first, *others = possible
    return UsageError(
        f"NCCL {release} cannot be forced to {asked} for this {chosen.op}: {reason}",
        where=f"{system.ranks} ranks on {system.nodes} nodes",
        remedy=f"--algorithm nccl-2-4@{release}:algorithm={first}" + (f" (or {', '.join(others)})" if others else ""),
    )
