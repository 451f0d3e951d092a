"""The same fabric with fewer NICs: families whose GPUs can share one say so by their knob ``gpus_per_nic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.fabrics import fabric, families, knobs
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

KNOB = "gpus_per_nic"
SHARING = (2, 4, 8)  # times as many GPUs on a NIC


def with_fewer_nics(topology: Topology) -> list[Topology]:
    """Return the fabric as it is, then with fewer and fewer NICs a GPU; alone where its family has no such knob."""
    name, *options = topology.name.split(",")
    family = name.partition(":")[0]
    if family not in families() or KNOB not in knobs(family) or not is_spelled(topology):
        return [topology]
    given = dict(each.split("=", 1) for each in options)
    own = int(given.pop(KNOB, "1"))
    plain = ",".join([name, *(f"{key}={value}" for key, value in given.items())])
    variants = [topology]
    for times in SHARING:
        try:
            variants.append(fabric(f"{plain},{KNOB}={own * times}"))
        except UsageError:
            break
    return variants


def is_spelled(topology: Topology) -> bool:
    """Return whether the fabric is what its name says, with no fault and no rate changed afterwards."""
    try:
        spelled = fabric(topology.name)
    except UsageError:
        return False
    same = spelled.n_links == topology.n_links and bool(np.array_equal(spelled.rate, topology.rate))
    return same and spelled.transport == topology.transport and not topology.faults
