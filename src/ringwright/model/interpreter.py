"""The reference interpreter: what a Program means, on real data, slowly and plainly.

All moves of a step read before any writes. When an engine, an executor or an export disagrees with this file, they are wrong.
Nodes of the network add floats in the number format of the program's stream (``ringwright.model.codecs``), so that the error of a
program is measured by running it; whole numbers are added as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import ProgramError
from ringwright.model.codecs.adding_nodes import AddingNodes, Held, numbers_of
from ringwright.model.collective import PREFIXES
from ringwright.model.program import ADDING, Op

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Block, Program, Step

Buffers = list[dict[int, Held]]  # per node: slot -> elements, or what an adding node makes of them when they leave

_COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def inputs(collective: Collective, seed: int = 0) -> list[dict[int, np.ndarray]]:
    """Return seeded int64 data: per rank, the blocks it holds before, each of its length in elements."""
    generator = np.random.default_rng(seed)
    lengths = _lengths(collective)
    return [
        {block: generator.integers(1, 1000, lengths[block % len(lengths)]) for block in collective.initial(rank)}
        for rank in range(collective.p)
    ]


def expected(collective: Collective, given: Sequence[dict[int, np.ndarray]]) -> list[dict[int, np.ndarray]]:
    """Return what every rank must hold afterwards, by NumPy over all ranks at once: the oracle.

    Each block is of the dtype of what was given and of shape (elements,).
    """
    if collective.op in PREFIXES:
        wholes = [_whole(collective, given[: len(collective.contributors(rank))]) for rank in range(collective.p)]
    else:
        wholes = [_whole(collective, given)] * collective.p
    return [{block: wholes[rank][block] for block in collective.final(rank)} for rank in range(collective.p)]


def _whole(collective: Collective, given: Sequence[dict[int, np.ndarray]]) -> dict[int, np.ndarray]:
    """Return every block once, with the contributions of all that are given."""
    whole: dict[int, np.ndarray] = {}
    combine = _COMBINE[collective.reduce_op]
    for held in given:
        for block, values in held.items():
            whole[block] = combine(whole[block], values) if collective.reduces and block in whole else values
    if collective.reduces and collective.reduce_op == "avg":
        return {block: values / collective.p for block, values in whole.items()}
    return whole


def run(
    program: Program, given: Sequence[dict[int, np.ndarray]], nodes: AddingNodes | None = None
) -> list[dict[int, np.ndarray]]:
    """Execute a program and return per rank the blocks it must hold; raise ProgramError at the first impossible move.

    Each block is of the dtype of what was given and of shape (elements,). ``nodes`` say how the network adds floats and count
    what happens there; without them formats are as they are by default and contributions arrive in the order of the moves.
    """
    state, nodes = _load(program, given), nodes or AddingNodes(program)
    for number, step in enumerate(program.steps()):
        _step(program, state, step, number, nodes)
    return _unload(program, state)


def _lengths(collective: Collective) -> np.ndarray:
    return collective.block_bytes // collective.unit_bytes


def _chunk_lengths(program: Program) -> np.ndarray:
    layout = program.layout
    sizes = layout.chunk_bytes[np.arange(layout.n_chunks) % len(layout.chunk_bytes)]
    return sizes // program.collective.unit_bytes


def placed(program: Program, rank: int, *, after: bool) -> list[tuple[int, int]]:
    """Return (slot, chunk) of all that a rank holds before, or must hold after."""
    layout, collective = program.layout, program.collective
    given = layout.after if after else layout.before
    if given is not None:
        slots, chunks = given[rank]
        return list(zip(slots.tolist(), chunks.tolist(), strict=True))
    blocks = collective.final(rank) if after else collective.initial(rank)
    parts = layout.parts
    return [(block * parts + part, block * parts + part) for block in blocks for part in range(parts)]


def _load(program: Program, given: Sequence[dict[int, np.ndarray]]) -> Buffers:
    state: Buffers = [{} for _ in range(program.n_nodes)]
    parts, lengths = program.layout.parts, _chunk_lengths(program)
    for rank, held in enumerate(given):
        for slot, chunk in placed(program, rank, after=False):
            block = chunk // parts
            begin = int(lengths[block * parts : chunk].sum())
            state[rank][slot] = held[block][begin : begin + int(lengths[chunk])].copy()
    return state


def _unload(program: Program, state: Buffers) -> list[dict[int, np.ndarray]]:
    results: list[dict[int, np.ndarray]] = []
    scale = program.collective.p if program.collective.reduce_op == "avg" and program.collective.reduces else 1
    for rank in range(program.p):
        pieces: dict[int, list[np.ndarray]] = {}
        for slot, chunk in sorted(placed(program, rank, after=True), key=lambda pair: pair[1]):
            if slot not in state[rank]:
                raise ProgramError(f"rank {rank} ends without chunk {chunk}", where=f"{program.name}, slot {slot}")
            pieces.setdefault(chunk // program.layout.parts, []).append(numbers_of(state[rank][slot]))
        results.append(
            {
                block: np.concatenate(found) / scale if scale > 1 else np.concatenate(found)
                for block, found in pieces.items()
            }
        )
    return results


def _step(program: Program, state: Buffers, step: Step, number: int, nodes: AddingNodes) -> None:
    combine = _COMBINE[program.collective.reduce_op]
    arriving: list[tuple[int, int, int, Block, Held]] = []
    for block in step.blocks:
        for src, dst, chunk, to in zip(*(column.tolist() for column in block.arrays()), strict=True):
            for further in range(block.span):
                if chunk + further not in state[src]:
                    raise ProgramError(
                        f"{program.name} sends what is not there",
                        where=f"rank {src}, step {number}, chunk {chunk + further}",
                    )
                if block.op is Op.REDUCE and to + further not in state[dst]:
                    raise ProgramError(
                        f"{program.name} adds to what is not there",
                        where=f"rank {dst}, step {number}, chunk {to + further}",
                    )
                arriving.append((src, dst, to + further, block, state[src][chunk + further]))
    for block in step.blocks:
        if block.op is Op.EMIT:
            _release(state, block)
    for src, dst, slot, block, held in arriving:
        adds = block.op in ADDING
        present = state[dst].get(slot) if adds else None
        if adds and dst >= program.p:
            partial = nodes.joined(dst, block.channel, present, held, src, number)
            if partial is not None:
                state[dst][slot] = partial
                continue
        values = numbers_of(held)
        state[dst][slot] = values.copy() if present is None else combine(numbers_of(present), values)


def _release(state: Buffers, block: Block) -> None:
    """Empty what a switch has sent out: its slots are for the next."""
    src, _, chunk, _ = block.arrays()
    for node, slot in zip(src.tolist(), chunk.tolist(), strict=True):
        for further in range(block.span):
            state[node].pop(slot + further, None)
