"""Facts of MSCCL++ execution plans that readers and writers share.

Source: microsoft/mscclpp (src/core/executor/execution_plan.cc, execution_kernel.hpp; docs/dsl/concepts.md).
"""

from __future__ import annotations

DIALECT = "mscclpp-json"
CHANNELS = ("memory", "port")
PROTOCOLS = ("Simple", "LL")
COLLECTIVES = {
    "reducescatter": "reduce-scatter",
    "reduce_scatter": "reduce-scatter",
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
# What an operation does: reads what, writes what. Reductions start with their first source.
COPIES = ("copy", "cpkt", "upkt")
PUTS = ("put", "pws", "pwsf", "ppkt", "rppkt")
REDUCES = ("re", "res", "rre", "rres", "repkt", "recpkt", "respkt", "recspkt")
SIGNALS, WAITS = ("signal", "rlxsignal"), ("wait", "rlxwait")
SWITCHES = ("glres", "gstore", "gstorepkt")
SEMAPHORES = ("sem_acquire", "sem_release")
OTHERS = ("nop", "flush", "barrier", "get", "pipeline")
NAMES = (*COPIES, *PUTS, *REDUCES, *SIGNALS, *WAITS, *SWITCHES, *SEMAPHORES, *OTHERS)
READS_PACKETS_FIRST = ("upkt", "rppkt")  # their source is packets
READS_PACKETS_LATER = ("repkt", "recpkt", "respkt", "recspkt")  # all but their first source are packets
WRITES_PACKETS_AWAY = ("ppkt", "rppkt", "respkt", "recpkt", "recspkt")  # all but the plain result are packets
