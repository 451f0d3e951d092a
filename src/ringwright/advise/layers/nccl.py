"""What NCCL may be told: algorithm, protocol and channels of an operation, of those that the release has on the machine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.advise.layers.operations import LeftOut, MainOperation, on_known_machine, quickest, slot_of, timed
from ringwright.advise.settings import Setting
from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
from ringwright.costs.nccl import ALGORITHMS, PROTOCOLS
from ringwright.costs.nccl.constants import release_numbers
from ringwright.costs.nccl.environment import EVERY_OP, PER_OP_FROM, NcclEnvironment
from ringwright.formats.settings.nccl_environment import variables
from ringwright.ground.errors import UsageError
from ringwright.jobs.pricing.costs import LIBRARY

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

CHANNELS = (2, 4, 8, 16, 32)  # of the pair that is quickest alone
MOST_PAIRS, SLOWER = 4, 1.5  # pairs of an operation; times what it takes alone today, above which one is left out
RISK = "variables hold for every communicator of the process, a tuner file for those of as many nodes and ranks"


def forced_settings(
    situation: Situation, operations: list[MainOperation], left: LeftOut, release: str = ""
) -> list[Setting]:
    """Return a setting for each algorithm and protocol that a release ("": the latest) has, and for each on fewer channels."""
    on_known_machine(situation)
    if situation.mpi:
        raise UsageError(
            f"the job runs {situation.mpi}, not NCCL", remedy="--may algorithm tries what that library has"
        )
    pairs = [(name, protocol) for name in ALGORITHMS for protocol in PROTOCOLS]
    settings = []
    for each in operations:
        plain = [(each, setting) for pair in pairs if (setting := _possible(each, pair, release)) is not None]
        kept = quickest([each], timed(situation, plain, left, SLOWER), MOST_PAIRS)
        settings += kept
        if kept:
            words = kept[0].knobs
            pair = words["algorithm"], words["protocol"]
            settings += [_setting(each, pair, channels, release) for channels in CHANNELS]
    return settings


def _possible(operation: MainOperation, pair: tuple[str, str], release: str) -> Setting | None:
    """Return the setting of a pair; None of one that no machine has."""
    try:
        return _setting(operation, pair, None, release)
    except UsageError:
        return None


def _setting(operation: MainOperation, pair: tuple[str, str], channels: int | None, release: str) -> Setting:
    words = [LIBRARY, *([f"release={release}"] if release else []), f"algorithm={pair[0]}", f"protocol={pair[1]}"]
    told = f"{operation.op} by {pair[0]} with {pair[1]}"
    if channels:
        words.append(f"channels={channels}")
        told += f" on {channels} channels"
    told_by = " ".join(
        f"{name}={value}" for name, value in variables(_environment(operation.op, pair, channels, release))
    )
    return Setting(
        "nccl",
        slot_of(operation),
        ":".join(words),
        told,
        f"environment: {told_by}; or a tuner file",
        RISK,
        {"channels": math.log2(channels)} if channels else {},
        operation.size_bytes,
        operation.ranks,
    )


def forced_environment(settings: Iterable[Setting]) -> NcclEnvironment | None:
    """Return the variables that say what settings of this layer do; None where there are none, or no variables say all of it."""
    joined: NcclEnvironment | None = None
    for each in settings:
        if each.layer != "nccl":
            continue
        words = each.knobs
        channels = int(words["channels"]) if "channels" in words else None
        mine = _environment(each.op, (words["algorithm"], words["protocol"]), channels, words.get("release", ""))
        if joined is not None and (EVERY_OP in mine.algorithms or channels != joined.max_channels):
            return None
        joined = (
            mine
            if joined is None
            else replace(
                joined,
                algorithms={**joined.algorithms, **mine.algorithms},
                protocols={**joined.protocols, **mine.protocols},
            )
        )
    return joined


def _environment(op: str, pair: tuple[str, str], channels: int | None, release: str) -> NcclEnvironment:
    newest = release or NEWEST
    of = op if release_numbers(newest)[:2] >= PER_OP_FROM else EVERY_OP
    return NcclEnvironment(newest, {of: (pair[0],)}, {of: (pair[1],)}, channels, channels)
