"""The nodes of a program that add, each in the number format of its streams: what the interpreter asks about real numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.model.codecs.contributions import CARRIED
from ringwright.model.codecs.formats import added, codec_of, numbers_in
from ringwright.model.streams import payload_bytes
from ringwright.model.topology import Capability

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.streams import Stream
    from ringwright.model.topology import Topology

ROW = tuple[int, int, np.ndarray]  # step in which a contribution came, node that it came from, its numbers


@dataclass
class AddingNodes:
    """What the adding nodes of a program make of floats, and how often something happened there.

    Whole numbers, and float64 where a format does not carry it, are what a program *means*: they are added as they are.
    float32 and float16 are what comes out of it.

    Parameters
    ----------
    program
        Whose nodes and streams these are.
    topology
        The machine: how much a packet of its nodes holds, and in which order they add; without it packets of 1,024 B.
    knobs
        Of formats by name, ``{"split-float": {"variant": "approximate"}}``; the program's own knobs of these names
        (``OF_PROGRAMS`` beside a format) stand where they say nothing.
    arrival_seed
        In which order contributions of one step arrive at nodes that keep none; None: that of the moves.
    counts
        Results that nodes gave, and ``overflows``, ``overwrites``, ``resent`` and ``not_finite`` of all of them
        (``ringwright.model.codecs.contributions.NodeSum``).
    """

    program: Program
    topology: Topology | None = None
    knobs: Mapping[str, Mapping[str, str | int | float]] = field(default_factory=dict)
    arrival_seed: int | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def joined(
        self, node: int, channel: int, present: Held | None, arriving: Held, src: int, step: int
    ) -> NodePartial | None:
        """Return what a node holds with one contribution more; None where it adds the numbers as NumPy does."""
        if not self.program.collective.reduces:
            return None
        stream = self._stream(node, channel)
        if stream is None or not _is_encoded(stream.codec, arriving):
            return None
        rows = self._rows(stream, present, node, -1) if present is not None else ()
        return NodePartial(self, stream, (*rows, *self._rows(stream, arriving, src, step)))

    def _stream(self, node: int, channel: int) -> Stream | None:
        at = self.program.aggregators[node - self.program.p]
        return next((each for each in self.program.streams if each.node == at and each.takes(channel)), None)

    def _rows(self, stream: Stream, held: Held, src: int, step: int) -> tuple[ROW, ...]:
        """Return contributions as they came: sums of whole numbers stay such from node to node, so as if all came here."""
        if isinstance(held, NodePartial):
            if held.stream is stream or (held.stream.codec == stream.codec and codec_of(stream.codec).whole_numbers):
                return held.rows
            held = held.values
        return ((step, src, held),)

    def result(self, stream: Stream, rows: tuple[ROW, ...]) -> np.ndarray:
        """Return the sum that leaves a node, of the dtype of its contributions and of shape (elements,)."""
        can = Capability() if self.topology is None else self.topology.aggregators.get(stream.node, Capability())
        order = self._order(rows, can)
        op = self.program.collective.reduce_op
        codec = codec_of(stream.codec)
        own = {name: self.program.knobs[name] for name in codec.of_programs if name in self.program.knobs}
        knobs: dict[str, Any] = {**own, **self.knobs.get(stream.codec, {})}
        given = np.stack([rows[index][2] for index in order])
        if "packet" in signature(codec.call).parameters:
            sizes = {name: value for name, value in knobs.items() if name in codec.width_knobs()}
            knobs.setdefault("packet", numbers_in(stream.codec, payload_bytes(stream, can), given.itemsize, **sizes))
        if "seed" in signature(codec.call).parameters:
            # The rounding of one result tells none of another.
            knobs["seed"] = int(knobs.get("seed", 0)) + self.counts["results"]
        total = added(stream.codec, given, op="sum" if op == "avg" else op, **knobs)
        self.counts["results"] += 1
        for name in ("overflows", "overwrites", "resent", "not_finite"):
            self.counts[name] += getattr(total, name)
        return total.values

    def _order(self, rows: tuple[ROW, ...], can: Capability) -> list[int]:
        """Return the rows as they are added: a step after the other; within it by source, or as they happen to arrive."""
        numbers = list(range(len(rows)))
        if can.order == "fixed":
            return sorted(numbers, key=lambda index: rows[index][:2])
        if self.arrival_seed is None:
            return numbers
        drawn = np.random.default_rng((self.arrival_seed, self.counts["results"])).permutation(len(rows)).tolist()
        return sorted(numbers, key=lambda index: (rows[index][0], drawn[index]))


@dataclass(frozen=True, eq=False)
class NodePartial:
    """What a node holds of a result until it leaves: the contributions, which its registers have added up."""

    owner: AddingNodes
    stream: Stream
    rows: tuple[ROW, ...]

    @cached_property
    def values(self) -> np.ndarray:
        """The numbers that leave, of the dtype of the contributions and of shape (elements,)."""
        return self.owner.result(self.stream, self.rows)


Held = np.ndarray | NodePartial


def numbers_of(held: Held) -> np.ndarray:
    """Return what is read of what a node or a rank holds, of its own dtype and of shape (elements,)."""
    return held.values if isinstance(held, NodePartial) else held


def _is_encoded(codec: str, held: Held) -> bool:
    if isinstance(held, NodePartial):
        return True
    return np.issubdtype(held.dtype, np.floating) if codec == "native" else held.dtype.name in CARRIED
