"""How a job ends whose message never arrives: what its transport does about it, when it gives up, what the library says then.

One message between the two ends, sent when the first one stuck was due, shows what the transport does: packets follow it through
all of its retries. Inside a host nothing tries again: a GPU whose link is gone reports an error (an Xid, which NCCL returns as an
unhandled CUDA error: CoreWeave, "What do NCCL errors mean").

Does it go on without the NIC? NCCL has had a failover since 2.29 (release notes, NVIDIA/nccl pull request 2023), off unless
``NCCL_IB_RESILIENCY_PORT_FAILOVER=1``, and only among NICs that were fused to one; a port that comes back is used again from
2.30 on (NVIDIA/nccl issue 2044). On the fabrics here no NICs are fused; where two share a PCIe switch, as in a DGX A100, some
channels keep to one even if they are (NVIDIA/nccl issue 2192).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.calls.library_calls import LIBRARY
from ringwright.engines.choose import simulate
from ringwright.engines.packets.carriage import inside, spoken, without_losses
from ringwright.ground.errors import DeclinedError, InfeasibleError, JobEndsError, NeverArrivesError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.topology import NIC, RANK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringwright.model.topology import Topology

MESSAGE = 4 << 20  # bytes of the message that shows what the transport does
RANKS_TRIED = 64
FUSED = ("infiniband", "roce")  # transports of NCCL's own IB plug-in, which has the failover
FAILOVER = "no failover: NCCL has one since 2.29 (NCCL_IB_RESILIENCY_PORT_FAILOVER=1), among NICs fused to one, and none are here"
XID = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ends: ``kind`` and ``why``, ``between`` whom, when, what is printed, and why nothing goes on."""

    kind: str
    why: str
    between: str
    at_us: float
    prints: str
    failover: str | None


def end_of(error: NeverArrivesError | JobEndsError, on: Topology) -> InfeasibleError:
    """Return how the job ends on a machine; the error itself where the message that is stuck could go around."""
    ends = error if isinstance(error, JobEndsError) else _of_message(error, on)
    if ends is None:
        return error
    if spoken(on).transport in FUSED and _has_dead_nic(on):
        ends.failover = FAILOVER
    return ends


def _of_message(stuck: NeverArrivesError, on: Topology) -> JobEndsError | None:
    """Return how the job ends that has a message which never arrives; None where packets would arrive."""
    pair: tuple[int, int] | None = (stuck.src, stuck.dst)
    since = _dead(on)
    if on.kinds[stuck.src] != RANK or on.kinds[stuck.dst] != RANK:  # a switch that adds or copies
        within = inside(on)
        if any(within[link] for link in since):
            return _inside(on, since, stuck.due_s)
        pair = across(on, list(since))
    if pair is None:
        return None
    _, crossed = on.routes(np.array(pair[:1]), np.array(pair[1:]))
    mine = {link: since[link] for link in crossed.tolist() if link in since}
    begins_s = max(stuck.due_s, min(mine.values(), default=0.0))
    try:
        _send(without_losses(on.starting_at(begins_s)), pair)
    except JobEndsError as ends:
        return JobEndsError(ends.kind, ends.why, between=ends.between, at_s=begins_s + ends.at_s, prints=ends.prints)
    except NeverArrivesError:
        return _inside(on, mine, begins_s) if mine else None
    except (DeclinedError, UsageError):
        return None
    return None


def _has_dead_nic(on: Topology) -> bool:
    dead = list(_dead(on))
    return bool((on.kinds[np.concatenate([on.src[dead], on.dst[dead]])] == NIC).any())


def as_row(ends: JobEndsError) -> JobEnd:
    """Return the end as a row of JSON holds it."""
    return JobEnd(
        kind=ends.kind,
        why=ends.why,
        between=ends.between,
        at_us=ends.at_s * 1e6,
        prints=ends.prints,
        failover=ends.failover or None,
    )


def _send(on: Topology, pair: tuple[int, int]) -> None:
    _, make, _ = algorithm(LIBRARY)
    program = make(Collective("send-recv", pair, MESSAGE, "float32"), replace(on, faults=()))
    simulate(program, on, "packets")


def _dead(on: Topology) -> dict[int, float]:
    """Return the links that are down for good, and since when, in seconds."""
    last = {each.target: each for each in on.faults if each.kind == "link" and each.field == "rate_factor"}
    return {link: each.time_s for link, each in last.items() if each.value <= 0}


def _inside(on: Topology, dead: Mapping[int, float], begins_s: float) -> JobEndsError:
    within = inside(on)
    link = next(link for link in dead if within[link])
    between = f"{on.label(int(on.src[link]))} to {on.label(int(on.dst[link]))}"
    why = f"{on.classes[int(on.link_class[link])]} is down, and nothing tries again inside a host"
    return JobEndsError("dead-link", why, between=between, at_s=max(begins_s, dead[link]), prints=XID)


def across(topology: Topology, links: Sequence[int]) -> tuple[int, int] | None:
    """Return two ranks whose messages cross one of the links; None where no such two are near it."""
    ends = np.unique([int(node[link]) for link in links for node in (topology.src, topology.dst)])
    near = {topology.label(int(node)).partition("/")[0] for node in ends}
    ranks = range(topology.n_ranks)
    mine = [rank for rank in ranks if topology.label(rank).partition("/")[0] in near] or list(ranks[:RANKS_TRIED])
    others = np.unique(np.linspace(0, topology.n_ranks - 1, RANKS_TRIED).astype(np.int64))
    for rank in mine[:RANKS_TRIED]:
        far = others[others != rank]
        starts, crossed = topology.routes(np.full(len(far), rank), far)
        hit = np.flatnonzero(np.isin(crossed, links))
        if len(hit):
            return rank, int(far[int(np.searchsorted(starts, hit[0], side="right")) - 1])
    return None
