"""ByteScheduler: partitions by urgency under a credit of bytes on their way.

Idea: Every tensor is cut into partitions; ready partitions are ordered by layer and released while credit is left. The end
    of the step is crossed: forward of a layer waits for that layer's partitions only.
Cost: At most the optimum for sizes s/B + theta ceil(s/delta), plus delta/B + theta. Credit must hide a message's latency and
    stay short against the time that it takes to pre-empt.
Knobs: ``partition_mb`` and ``credit_mb`` in MiB (None: 1,000,000 and 4,000,000 parameters for servers, 8,000,000 and
    16,000,000 for all-reduce, of 4 B); ``scan`` lets smaller partitions pass a head that does not fit (BytePS);
    ``overhead_us`` (0) of starting a partition.
Holds: At most credit + one partition on its way; no ready partition waits that is more urgent than one started.
Figure: Fig. 2: 26 against 18 units. Up to 196 % (VGG16, TensorFlow, servers over TCP); 97 % to 125 % for MXNet over RDMA.
Source: Peng et al., SOSP 2019, 10.1145/3341301.3359642; bytedance/byteps, branch bytescheduler.
Declines: nothing.
"""

from __future__ import annotations

from ringwright.ground.knobs import Microseconds, Piece
from ringwright.model.stages import Costs
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.order import GRADIENTS, by_layer

NEEDS = ("workload.gradients",)
SERVERS, ALL_REDUCE = (4_000_000, 16_000_000), (32_000_000, 64_000_000)  # bytes of a partition, and of credit


def bytescheduler(
    workload: Workload,
    costs: Costs,
    *,
    partition_mb: Piece | None = None,
    credit_mb: Piece | None = None,
    scan: bool = False,
    overhead_us: Microseconds = 0.0,
) -> Workload:
    """Return the workload with partitioned gradients by urgency under credit, and no barrier."""
    served = any(payload.op == "push-pull" for payload in workload.gradients())
    partition, credit = SERVERS if served else ALL_REDUCE
    partition = partition if partition_mb is None else round(partition_mb * (1 << 20))
    credit = credit if credit_mb is None else round(credit_mb * (1 << 20))
    return workload.with_policy(
        "bytescheduler",
        rewrites=(Rewrite("partition", GRADIENTS, {"size_bytes": partition}),),
        queue=Queue(
            keys=by_layer(workload),
            windows=dict.fromkeys(GRADIENTS, (float(credit), "bytes")),
            blocking=not scan,
            issue_s=overhead_us * 1e-6,
        ),
        boundary="layer",
        agreement="leader",
    )
