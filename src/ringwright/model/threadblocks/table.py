"""The tables of a declared program: its thread blocks, its instructions, and where its buffers begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

LETTERS = "ios"  # input, output and scratch buffers, in the order of the columns of ``ThreadBlockTables.bases``


class Opcode(IntEnum):
    """What an instruction does; the first nine are those of MSCCL, the rest are one-sided.

    ``src`` and ``dst`` are local operands, except that PUT writes dst at the peer and GET and READ_REDUCE read src there.
    """

    NOP = 0
    S = 1  # send src
    R = 2  # receive into dst
    RCS = 3  # receive, store in dst, send what was received
    RRC = 4  # receive, add src, store in dst
    RRS = 5  # receive, add src, send the sum
    RRCS = 6  # receive, add src, store in dst, send the sum
    CPY = 7  # dst := src
    RE = 8  # dst += src
    PUT = 9  # dst at the peer := src
    GET = 10  # dst := src at the peer
    READ_REDUCE = 11  # dst += src at the peer
    SIGNAL = 12  # raise a mark, behind all that this thread block has put
    WAIT = 13  # until a mark was raised often enough
    LOAD = 14  # dst := sum over a switch group, made by the switch
    LOAD_STORE = 15  # as LOAD, into dst of every member
    STORE = 16  # dst of every member := src


RECEIVES = (Opcode.R, Opcode.RCS, Opcode.RRC, Opcode.RRS, Opcode.RRCS)
SENDS = (Opcode.S, Opcode.RCS, Opcode.RRS, Opcode.RRCS)
ADDS_TO_RECEIVED = (Opcode.RRC, Opcode.RRS, Opcode.RRCS)
KEEPS_RECEIVED = (Opcode.R, Opcode.RCS, Opcode.RRC, Opcode.RRCS)
READS_SRC = (
    *ADDS_TO_RECEIVED,
    Opcode.S,
    Opcode.CPY,
    Opcode.RE,
    Opcode.PUT,
    Opcode.GET,
    Opcode.READ_REDUCE,
    Opcode.STORE,
)
WRITES_DST = (*KEEPS_RECEIVED, Opcode.CPY, Opcode.RE, Opcode.PUT, Opcode.GET, Opcode.READ_REDUCE, Opcode.LOAD)
SWITCHED = (Opcode.LOAD, Opcode.LOAD_STORE, Opcode.STORE)
WRITES_PACKETS, READS_PACKETS = 1, 2  # bits of Code.packet: data that carry their own flag


def one_of(kinds: np.ndarray, chosen: Sequence[Opcode]) -> np.ndarray:
    """Return where ``kinds`` is one of the chosen. bool of the shape of ``kinds``."""
    import numpy as np

    return np.isin(kinds, [int(kind) for kind in chosen])


@dataclass(frozen=True)
class Blocks:
    """Thread blocks, in the order of their instructions: rank, number at the rank, peers (-1: none) and channel."""

    rank: np.ndarray
    threadblock: np.ndarray
    send: np.ndarray
    recv: np.ndarray
    channel: np.ndarray

    @staticmethod
    def of(rows: Sequence[tuple[int, int, int, int, int]]) -> Blocks:
        """Return the table of rows (rank, threadblock, send, recv, channel)."""
        return Blocks(*_columns(rows, 5))

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class Code:
    """Instructions, thread block after thread block.

    ``block`` is the row of the thread block; ``step`` the place in it that the file names; buffers are numbers into LETTERS
    with ``src`` and ``dst`` the first of ``count`` chunks; ``dep`` the row of an instruction of the same rank that must be done
    before, or -1; ``has_dep`` whether another waits for this one. ``peer`` is the rank a one-sided instruction reaches, or the
    switch group; ``mark`` what it raises or waits for (``count`` times); ``packet`` the bits of WRITES_ and READS_PACKETS.
    """

    block: np.ndarray
    step: np.ndarray
    kind: np.ndarray
    src_buffer: np.ndarray
    src: np.ndarray
    dst_buffer: np.ndarray
    dst: np.ndarray
    count: np.ndarray
    dep: np.ndarray
    has_dep: np.ndarray
    peer: np.ndarray
    mark: np.ndarray
    packet: np.ndarray

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> Code:
        """Return the table of rows; the last three columns may be left out (-1, -1, 0)."""
        columns = _columns(rows, len(rows[0]) if rows else 10)
        if len(columns) == 10:
            columns += [columns[0] * 0 - 1, columns[0] * 0 - 1, columns[0] * 0]
        return Code(*columns)

    def __len__(self) -> int:
        return len(self.block)


def _columns(rows: Sequence[Sequence[int]], width: int) -> list[np.ndarray]:
    import numpy as np

    table = np.array(rows, np.int64).reshape(-1, width)
    return [np.ascontiguousarray(column) for column in table.T]


@dataclass(frozen=True)
class ThreadBlockTables:
    """Thread blocks and instructions of all ranks, and what the order among them rests on.

    ``bases`` and ``sizes`` (ranks x 3) say at which slot each rank's input, output and scratch begin and how many chunks they
    hold; buffers that alias share slots. ``depth`` is how many messages a connection holds. ``slices`` is how often the runtime
    runs the whole order, each time on one slice of every chunk: the order must hold for each. ``initial`` gives how often
    each mark counts as raised before the start, ``groups`` the ranks and buffer of each switch group, ``further`` more
    pairs (before, after) of instructions. ``dialect`` and ``attributes`` keep what an export needs to write the same file.
    """

    blocks: Blocks
    code: Code
    bases: np.ndarray
    sizes: np.ndarray
    depth: int
    slices: int = 1
    initial: tuple[int, ...] = ()
    groups: tuple[tuple[tuple[int, ...], int], ...] = ()
    further: tuple[tuple[int, int], ...] = ()
    dialect: str = ""
    attributes: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def p(self) -> int:
        """Ranks."""
        return len(self.bases)

    @cached_property
    def rank(self) -> np.ndarray:
        """Return the rank of each instruction. int64 of shape (instructions,)."""
        ranks: np.ndarray = self.blocks.rank[self.code.block]
        return ranks

    @cached_property
    def slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first slot of src and of dst of each instruction, wherever these lie.

        Both int64 of shape (instructions,).
        """
        import numpy as np

        code = self.code
        here, far = self.rank, np.where(code.peer >= 0, code.peer, self.rank) % self.p
        src_rank = np.where(one_of(code.kind, (Opcode.GET, Opcode.READ_REDUCE)), far, here)
        dst_rank = np.where(code.kind == Opcode.PUT, far, here)
        return self.bases[src_rank, code.src_buffer] + code.src, self.bases[dst_rank, code.dst_buffer] + code.dst

    @cached_property
    def own_slots(self) -> int:
        """Slots per rank that buffers take; FIFOs begin behind them."""
        return int((self.bases + self.sizes).max(initial=0))

    def place(self, instruction: int) -> tuple[int, int, int]:
        """Return rank, thread block and step of an instruction."""
        block = int(self.code.block[instruction])
        return int(self.blocks.rank[block]), int(self.blocks.threadblock[block]), int(self.code.step[instruction])

    def where(self, instruction: int) -> str:
        """Return the place of an instruction in words."""
        rank, threadblock, step = self.place(instruction)
        return f"rank {rank}, thread block {threadblock}, step {step}"
