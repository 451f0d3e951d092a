"""Schedule: the declared order of an imported or scheduled program, thread block by thread block.

Each rank runs its thread blocks side by side. A thread block runs its instructions in order; it sends to one peer and
receives from one peer, on one channel, and at most ``depth`` messages of a connection are under way. A received message
waits in the FIFO of its connection until the receiving instruction takes it out: FIFOs are scratch slots of the program,
so that what a declared program means is said by ordinary moves. One-sided instructions write at a peer at once and are
ordered by signals and semaphores.
"""

from __future__ import annotations

from ringwright.model.threadblocks.buffers import Arrangement, arrange
from ringwright.model.threadblocks.order import InstructionOrder, OrderViolation
from ringwright.model.threadblocks.program import declared
from ringwright.model.threadblocks.schedule import Schedule
from ringwright.model.threadblocks.table import LETTERS, Blocks, Code, Opcode

__all__ = [
    "LETTERS",
    "Arrangement",
    "Blocks",
    "Code",
    "InstructionOrder",
    "Opcode",
    "OrderViolation",
    "Schedule",
    "arrange",
    "declared",
]
