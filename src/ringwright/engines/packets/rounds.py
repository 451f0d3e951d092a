"""The same program several times in a row: its connections keep what they have learnt of the network, as those of a job do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import flatten
from ringwright.engines.machine import PS
from ringwright.engines.packets.carriage import wire_rates, without_losses
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import run
from ringwright.engines.slots import machines

if TYPE_CHECKING:
    from ringwright.engines.messages import MessageGraph
    from ringwright.program import Program
    from ringwright.topology import Topology


def round_times_s(program: Program, topology: Topology, options: PacketOptions, rounds: int) -> np.ndarray:
    """Return how long each of ``rounds`` runs in a row takes, all ranks waiting for each other between them.

    Seconds, float64 of shape (rounds,). Raises what one run by packets raises.
    """
    top = wire_rates(topology)
    (made,) = machines([program], without_losses(top))
    flat = flatten(program, made)
    told = run(repeated(flat, rounds), made.carrying(program), options, top)
    ends = told.end_ps.reshape(rounds, flat.n_messages).max(axis=1)
    times: np.ndarray = np.diff(ends, prepend=0) / PS
    return times


def repeated(flat: MessageGraph, rounds: int) -> MessageGraph:
    """Return a graph ``rounds`` times: what begins a round waits for all of the round before."""
    messages, joins = flat.n_messages, len(flat.waits) - flat.n_messages
    every = np.arange(rounds)[:, None]
    node = np.arange(messages + joins)
    number = np.where(node < messages, every * messages + node, rounds * messages + every * joins + node - messages)
    owner = np.repeat(node, np.diff(flat.next_starts))
    first, last = node[flat.waits == 0], node[np.diff(flat.next_starts) == 0]
    gate = rounds * (messages + joins) + every[:-1]
    before = [number[:, owner], number[:-1, last], np.broadcast_to(gate, (rounds - 1, len(first)))]
    after = [number[:, flat.nexts], np.broadcast_to(gate, (rounds - 1, len(last))), number[1:, first]]
    n = rounds * (messages + joins) + rounds - 1
    owners, nexts = (np.concatenate([each.ravel() for each in ends]) for ends in (before, after))
    order = np.argsort(owners, kind="stable")
    hops = np.tile(np.diff(flat.hop_starts), rounds)
    return replace(
        flat,
        src=np.tile(flat.src, rounds),
        dst=np.tile(flat.dst, rounds),
        size_bytes=np.tile(flat.size_bytes, rounds),
        adds=np.tile(flat.adds, rounds),
        step=np.tile(flat.step, rounds),
        hops=np.tile(flat.hops, rounds),
        delay=np.tile(flat.delay, rounds),
        hop_starts=_starts(hops).astype(flat.hop_starts.dtype),
        next_starts=_starts(np.bincount(owners, minlength=n)).astype(flat.next_starts.dtype),
        nexts=nexts[order].astype(flat.nexts.dtype),
        waits=np.bincount(nexts, minlength=n).astype(flat.waits.dtype),
    )


def _starts(lengths: np.ndarray) -> np.ndarray:
    starts: np.ndarray = np.concatenate(([0], np.cumsum(lengths)))
    return starts
