"""A change as a person spells it, as the setting that advice would make of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ringwright.advise.machines import FASTER, NAMED
from ringwright.advise.settings import BROKEN, GRAPH, MACHINE, OPERATION, ORDER, PREFETCH, Setting, Setup
from ringwright.ground.errors import UsageError
from ringwright.model.registry import scheduler, schedulers, systems
from ringwright.model.stages import VOLUME

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

BUCKETS = "ddp:"  # is short for pytorch-ddp:
EXAMPLES = "--change ddp:bucket_cap_mb=25, p3, all-reduce=ring, repair:3, fsdp:2, or what advise --json calls spelling"


def setup_of(situation: Situation, text: str) -> Setup:
    """Return the setup of a change, or of several joined by semicolons; UsageError for one that is not known.

    A scheduler, an operation by a system (``all-reduce=ring``), ranks that are mended (``repair:3``), layers that are gathered
    ahead (``fsdp:2``), or links and fabrics as advice spells them.
    """
    parts = [each.strip() for each in text.split(";") if each.strip()]
    if not parts:
        raise UsageError("no change is named", where="--change", remedy=EXAMPLES)
    return Setup.of(_setting(situation, each) for each in parts)


def _setting(situation: Situation, text: str) -> Setting:
    kind, _, rest = text.partition(":")
    op, _, system = text.partition("=")
    if re.fullmatch(r"(repair:)?\d+(,\d+)*", text):
        return _mended(situation, text.removeprefix("repair:"))
    if kind == "fsdp" and rest.isdigit() and int(rest) > 0:
        return Setting("fsdp", PREFETCH, rest, f"parameters gathered {rest} layers ahead", "")
    if op in VOLUME and system:
        return Setting("algorithm", f"{OPERATION}{op}", system, f"{op} by {system}", "")
    if text.startswith((FASTER, NAMED)):
        return Setting("fabric", MACHINE, text, text, "")
    return _by_name(situation, f"pytorch-{text}" if text.startswith(BUCKETS) else text)


def _mended(situation: Situation, text: str) -> Setting:
    ranks = [int(each) for each in text.split(",")]
    beyond = [rank for rank in ranks if rank >= situation.workload.mesh.size]
    if beyond:
        raise UsageError(
            f"the job has no rank {beyond[0]}", where=text, remedy=f"ranks 0 to {situation.workload.mesh.size - 1}"
        )
    return Setting("repair", BROKEN, ",".join(map(str, ranks)), f"rank {text} as quick as the others", "")


def _by_name(situation: Situation, text: str) -> Setting:
    """Return a scheduler, or a system for the operation of which the job sends most."""
    slug = text.partition(":")[0].partition("+")[0]
    kinds = {each.slug: each.kind for each in schedulers()}
    if slug in kinds:
        scheduler(text)
        is_graph = kinds[slug] == "decompose"
        return Setting("rewrites" if is_graph else "policy", GRAPH if is_graph else ORDER, text, text, "")
    known = {each.slug: each.ops for each in systems()}
    sent: dict[str, int] = {}
    for each in situation.workload.payloads:
        sent[each.op] = sent.get(each.op, 0) + each.size_bytes
    ops = [op for op in sorted(sent, key=lambda op: -sent[op]) if op in known.get(slug, ())]
    if not ops:
        raise UsageError(f"'{text}' is no change of this job", where="--change", remedy=EXAMPLES)
    return Setting("algorithm", f"{OPERATION}{ops[0]}", text, f"{ops[0]} by {text}", "")
