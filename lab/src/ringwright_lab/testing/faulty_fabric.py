"""A simulated job on a fabric with one fault, as a Trace with the truth beside it: what diagnosis is tried on.

Links: every pair of ranks sends once, alone with the other pairs of its distance, by the event engine on the faulty fabric; each
time gets seeded noise. Ranks: collectives that end together, to which one rank comes late in one of several manners.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import rows
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, cut, explicit
from ringwright.model.topology import NIC, Topology
from ringwright.model.trace import Trace

FABRICS = ("dgx-a100:4,layout=switch", "dgx-h100:4,layout=switch", "p4d:4", "polaris:8")
LINK_FAULTS = {
    # name: (line of the fault language, whether it takes the NIC's way out, its way in, or both)
    "slow-card": ("link {nic} rate {share}%", "both"),
    "slow-out": ("link {nic}>{switch} rate {share}%", "out"),
    "slow-in": ("link {switch}>{nic} rate {share}%", "in"),
    "lossy-card": ("link {nic} loss {lost}%", "both"),
    "delayed-card": ("link {nic} latency +{delay}us", "both"),
    "flapping-card": ("link {nic} flap 20us every 60us", "both"),
}
RANK_FAULTS = ("late", "later-and-later", "late-at-times", "late-in-one-group", "pauses", "late-every-third-step")
SIZE_BYTES = 4 << 20
REPEATS = 3
NOISE = 0.03
STEPS, CALLS = 30, 3


@dataclass(frozen=True)
class FabricTruth:
    """What was put in: ``kind`` link, rank or none; the ranks concerned."""

    kind: str
    mechanism: str
    ranks: tuple[int, ...] = ()


def job(mechanism: str, seed: int) -> tuple[Trace, FabricTruth]:
    """Return a job with a fault of ``mechanism`` (none: a healthy job); UsageError for an unknown one."""
    rng = np.random.default_rng(seed)
    if mechanism in LINK_FAULTS:
        return _linked(mechanism, rng)
    if mechanism in RANK_FAULTS:
        return _late(mechanism, rng)
    if mechanism != "none":
        known = ("none", *LINK_FAULTS, *RANK_FAULTS)
        raise UsageError(f"no fault is called '{mechanism}'", remedy=f"one of: {', '.join(known)}")
    return _linked("", rng) if rng.random() < 0.5 else _late("", rng)


def _linked(mechanism: str, rng: np.random.Generator) -> tuple[Trace, FabricTruth]:
    """Measure all pairs of a fabric, one of whose NICs is broken."""
    top = fabric(str(rng.choice(FABRICS)))
    truth = FabricTruth("none", "none")
    if mechanism:
        nic = int(rng.choice(np.flatnonzero(top.kinds == NIC)))
        truth = FabricTruth("link", mechanism, _behind(top, nic))
        top = apply(top, [_line(top, nic, mechanism, rng)], horizon_s=0.003, seed=int(rng.integers(1 << 30)))
    events = _probes(top, rng)
    return _trace(top, events), truth


def _behind(top: Topology, nic: int) -> tuple[int, ...]:
    """Return the ranks whose route to another host leads over a NIC."""
    return tuple(rank for rank in range(top.n_ranks) if _nic(top, rank) == nic)


def _nic(top: Topology, rank: int) -> int:
    """Return the NIC by which a rank reaches its like in another host, -1 for none."""
    if top.hosts is None or not (top.kinds == NIC).any():
        return -1
    peers = np.flatnonzero(top.hosts != top.hosts[rank])
    index = rank - int(np.flatnonzero(top.hosts == top.hosts[rank])[0])
    _, route = top.routes(np.array([rank]), peers[[index]])
    return next((int(node) for node in top.src[route] if top.kinds[node] == NIC), -1)


def _line(top: Topology, nic: int, mechanism: str, rng: np.random.Generator) -> str:
    out = next(int(link) for link in np.flatnonzero(top.src == nic) if top.label(int(top.dst[link])).count("/") == 0)
    names = {"nic": top.label(nic), "switch": top.label(int(top.dst[out]))}
    numbers = {
        "delay": int(rng.integers(200, 500)),
        "share": int(rng.integers(15, 50)),
        "lost": int(rng.integers(40, 80)),
    }
    return LINK_FAULTS[mechanism][0].format(**names, **numbers)


def _probes(top: Topology, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return sends of every pair, distance by distance."""
    p = top.n_ranks
    collective = Collective("all-to-all", range(p), p * SIZE_BYTES)
    nics = [_nic(top, rank) for rank in range(p)]
    nic_index = [nics[:rank].count(nics[rank]) for rank in range(p)]  # among those that share a NIC
    turns = [np.flatnonzero(np.array(nic_index) == turn) for turn in range(max(nic_index) + 1)]
    rows, clock = [], 0.0
    for by, ranks in product(range(1, p), turns):
        step = Step((explicit(Op.SEND, ranks, (ranks + by) % p, ranks * p + (ranks + by) % p),))
        program = Program("probe", collective, cut(collective), lambda step=step: [step], 1, Cost((), 0.0))  # type: ignore[misc]
        run = simulate(program, top, "events", fold_symmetry=False)
        assert run.flat is not None  # noqa: S101 - not folded, so laid out
        lasted = (run.end_ps - run.start_ps)[: run.flat.n_messages] / 1e12
        for repeat in range(REPEATS):
            times = lasted * np.exp(rng.normal(0, NOISE, len(lasted)))
            rows += [
                {
                    "kind": "p2p",
                    "op": "send",
                    "rank": int(src),
                    "comm_rank": int(src),
                    "peer": int(dst),
                    "communicator": 0,
                    "size_bytes": SIZE_BYTES,
                    "start_s": clock,
                    "duration_s": float(time),
                    "iteration": repeat,
                    "clock": "host:0",
                    "multiplicity": 1,
                    "records": 1,
                    "nranks": p,
                    "source": "simulator",
                }
                for src, dst, time in zip(run.flat.src, run.flat.dst, times, strict=True)
            ]
            clock += float(times.max()) + 1e-4
    return rows


def _late(mechanism: str, rng: np.random.Generator) -> tuple[Trace, FabricTruth]:
    """Return steps of collectives; members come with jitter, one of them late."""
    p = int(rng.choice((4, 8, 16)))
    guilty = int(rng.integers(p))
    transfer, jitter = 300e-6, rng.uniform(5e-6, 30e-6)
    delay = transfer * rng.uniform(1.0, 6.0)
    clock, events = 0.0, []
    for number in range(STEPS * CALLS):
        step, call = divmod(number, CALLS)
        arrival = clock + np.abs(rng.normal(0, jitter, p)) + _shared(rng, jitter)
        if mechanism:
            arrival[guilty] += _delay(mechanism, step, call, delay, rng)
        end = arrival.max() + transfer * np.exp(rng.normal(0, NOISE))
        events += [
            {
                "kind": "collective",
                "op": "all-reduce",
                "rank": rank,
                "comm_rank": rank,
                "communicator": 0,
                "sequence": number,
                "size_bytes": 1 << 22,
                "start_s": float(arrival[rank]),
                "duration_s": float(end - arrival[rank]),
                "iteration": step,
                "clock": "host:0",
                "multiplicity": 1,
                "records": 1,
                "nranks": p,
                "source": "simulator",
                "file": "simulated",
                "line": number,
            }
            for rank in range(p)
        ]
        clock = float(end) + 1e-3
    top = fabric(f"switch:{p}")
    return _trace(top, events), FabricTruth("rank", mechanism, (guilty,)) if mechanism else FabricTruth("none", "none")


def _shared(rng: np.random.Generator, jitter: float) -> float:
    """A delay that all ranks share: it makes nobody late."""
    return float(np.abs(rng.normal(0, 10 * jitter)))


def _delay(mechanism: str, step: int, call: int, delay: float, rng: np.random.Generator) -> float:
    if mechanism == "later-and-later":
        return delay * (0.5 + 2 * step / STEPS) if call == 0 else 0.0
    if mechanism == "late-at-times":
        return delay * 3 if call == 0 and rng.random() < 0.6 else 0.0
    if mechanism == "late-in-one-group":
        return delay if call == 1 else 0.0
    if mechanism == "late-every-third-step":
        return delay * 2 if call == 0 and step % 3 == 0 else 0.0
    if mechanism == "pauses":
        return delay * rng.uniform(2, 8) if rng.random() < 0.4 else 0.0
    return delay if call == 0 else 0.0


def _trace(top: Topology, events: list[dict[str, Any]]) -> Trace:
    """Return the events with the devices of the fabric."""
    devices = [
        {
            "kind": "device",
            "rank": rank,
            "host": None if top.hosts is None else f"host{top.hosts[rank]}",
            "ground": "read",
            "nic": _nic_of(top, rank),
        }
        for rank in range(top.n_ranks)
    ]
    comm = {
        "communicator": 0,
        "comm_id": "world",
        "size": top.n_ranks,
        "members": [*range(top.n_ranks)],
        "ground": "read",
    }
    frames = {
        "events": rows("events", events),
        "communicators": rows("communicators", [comm]),
        "topology": rows("topology", devices),
    }
    return Trace.of(frames, {"source": "simulator", "world": top.n_ranks, "inputs": [top.name]})


def _nic_of(top: Topology, rank: int) -> str | None:
    nic = _nic(top, rank)
    return None if nic < 0 else top.label(nic).rpartition("/")[2]
