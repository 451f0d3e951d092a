"""Facts of MSCCL's dialect that readers and writers share: names, limits, how deep a FIFO is.

Source: microsoft/msccl (src/graph/topo.cc, src/include/msccl.h, msccl_interpreter.h), Azure/msccl-scheduler (parser.cc).
"""

from __future__ import annotations

from ringwright.model.threadblocks.table import Opcode

TYPES = {
    "s": Opcode.S,
    "r": Opcode.R,
    "rcs": Opcode.RCS,
    "rrc": Opcode.RRC,
    "rrs": Opcode.RRS,
    "rrcs": Opcode.RRCS,
    "cpy": Opcode.CPY,
    "re": Opcode.RE,
    "nop": Opcode.NOP,
}
# Messages under way on a connection: a FIFO has 8 steps; Simple takes 4 a chunk, of which two fit.
DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}
MOST_THREADBLOCKS = 216
MOST_STEPS = 256
MOST_COUNT = 71  # chunks in one step
MOST_CHANNELS = 32
MOST_PER_CHANNEL = 32  # sending, and receiving, thread blocks of a rank on one channel
MOST_AWAITED = 128  # thread blocks that others may wait for: their number is a signed byte
LARGEST = 1 << 27  # default of maxBytes
DIALECT = "msccl-xml"
