"""How far a program's sums of floats are from exact ones: it is run on numbers, in the formats in which its nodes add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model import interpreter
from ringwright.model.codecs.adding_nodes import AddingNodes
from ringwright.model.codecs.deviation import Deviation, deviation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_NUMBERS = 1 << 22  # over all ranks: about a second
FLOATS = {"float16": np.float16, "bfloat16": np.float32, "float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Numerics:
    """What came out of a program that was run on floats.

    Parameters
    ----------
    codecs
        The number formats in which its nodes add.
    deviation
        How far the results of all ranks are from exact ones.
    overflows, overwrites, resent, not_finite
        What happened at nodes (``ringwright.model.codecs.contributions.NodeSum``), over all results.
    results
        Results that nodes gave.
    """

    codecs: tuple[str, ...]
    deviation: Deviation
    overflows: int
    overwrites: int
    resent: int
    not_finite: int
    results: int

    @property
    def brief(self) -> str:
        """Formats and error in a few words: ``sums in block-exponent off by 2.7e-08``, and what else happened."""
        events = {"overflows": self.overflows, "overwrites": self.overwrites, "packets resent": self.resent}
        told = "".join(f", {count:,} {name}" for name, count in events.items() if count)
        return f"sums in {', '.join(self.codecs) or 'the ranks'} off by {self.deviation.relative_rms:.1e}{told}"


def normal_inputs(collective: Collective, seed: int = 0) -> list[dict[int, np.ndarray]]:
    """Return seeded normal numbers: per rank the blocks it holds before, of the collective's type and shape (elements,).

    bfloat16 numbers come as float32, of which they are some. Raises UsageError for types that are no floats.
    """
    kind = FLOATS.get(collective.dtype)
    if kind is None:
        raise UsageError(f"sums of {collective.dtype} are exact", remedy=f"a collective of {', '.join(FLOATS)}")
    generator = np.random.default_rng(seed)
    given: list[dict[int, np.ndarray]] = []
    for held in interpreter.inputs(collective):
        blocks = {block: generator.standard_normal(len(whole)).astype(kind) for block, whole in held.items()}
        given.append({block: _shortened(each) for block, each in blocks.items()} if _is_short(collective) else blocks)
    return given


def _is_short(collective: Collective) -> bool:
    return collective.dtype == "bfloat16"


def _shortened(values: np.ndarray) -> np.ndarray:
    """Return numbers without what a bfloat16 has no bits for. float32 of the shape of ``values``."""
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def numerics(
    program: Program,
    topology: Topology | None = None,
    *,
    given: Sequence[dict[int, np.ndarray]] | None = None,
    knobs: Mapping[str, Mapping[str, str | int | float]] | None = None,
    arrival_seed: int | None = None,
) -> Numerics:
    """Run a program that adds floats and compare with exact sums.

    Parameters
    ----------
    program
        A legal one, whose collective reduces.
    topology
        The machine: packet sizes of its nodes, and whether they keep an order.
    given
        Blocks of each rank, floats of the collective's type; None: ``normal_inputs``.
    knobs
        Of number formats: ``{"split-float": {"variant": "approximate"}}``.
    arrival_seed
        In which order contributions arrive at nodes that keep none; None: that of the moves.

    Raises
    ------
    UsageError
        It adds nothing, or no floats.
    """
    if not program.collective.reduces or not program.collective.size_bytes:
        raise UsageError(f"{program.name} adds nothing", remedy="an all-reduce, reduce-scatter or reduce of some bytes")
    blocks = normal_inputs(program.collective) if given is None else given
    nodes = AddingNodes(program, topology, knobs or {}, arrival_seed)
    results = interpreter.run(program, blocks, nodes)
    exact = interpreter.expected(
        program.collective, [{block: each.astype(np.float64) for block, each in held.items()} for held in blocks]
    )
    pairs = [(have[block], want[block]) for have, want in zip(results, exact, strict=True) for block in want]
    off = deviation(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
    counts = {name: nodes.counts[name] for name in ("overflows", "overwrites", "resent", "not_finite", "results")}
    return Numerics(tuple(dict.fromkeys(stream.codec for stream in program.streams)), off, **counts)


def measured(program: Program, topology: Topology | None = None) -> Numerics | None:
    """Return the numerics of a program whose network adds in a format of its own; None for others, and for large ones."""
    collective = program.collective
    encoded = any(stream.codec != "native" for stream in program.streams)
    if not encoded or not collective.reduces or not collective.size_bytes or collective.dtype not in FLOATS:
        return None
    if collective.p * (collective.size_bytes // collective.unit_bytes) > MOST_NUMBERS:
        return None
    return numerics(program, topology)
