"""What a message costs the processors at its ends, where nothing was measured on the machine: one number per transport.

- NVLink (``P2P``): nothing. The kernel's warps write to up to eight peers a channel at once
  (``NCCL_MAX_DEV_WORK_P2P_PER_BATCH`` in ``src/include/device.h``), more than an NVLink domain has; no processor takes part.
- RDMA (``NET/IB``, libfabric): a proxy thread posts a send and a receive for each peer, with :func:`net_overhead_us` each. A
  group with many peers has one operation for each (``scheduleP2pTasksToPlan`` in ``src/enqueue.cc``: one channel an
  operation where there are fewer channels than peers).
- TCP: no number. NCCL holds none, and no fabric here is one of TCP. Four public tables of all-to-all over TCP on 8, 32 and 512
  GPUs of Polaris (argonne-lcf/alcf-nccl-tests) have 15 to 17 us for each peer: calibrate the fabric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.costs.nccl.latency import net_overhead_us

if TYPE_CHECKING:
    from ringwright.costs.nccl.graphs import NcclSystem


def message_s(system: NcclSystem) -> float:
    """Return the seconds that a proxy works for one message sent and one received between nodes; 0 within one node."""
    return 2 * net_overhead_us(system) * 1e-6 if system.nodes > 1 else 0.0
