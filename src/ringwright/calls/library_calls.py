"""A collective on a fabric, and a calibration's tables, as calls of NCCL: what the learnt times are asked with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringwright.algorithms.blocks.ring import OPS as RING_OPS
from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
from ringwright.algorithms.libraries.nccl_2_4 import OPS as LIBRARY_OPS
from ringwright.algorithms.libraries.nccl_2_4.system import node_type, system_of
from ringwright.algorithms.libraries.open_mpi import OPS as MPI_OPS
from ringwright.costs.calibration.record import MeasuredTimes
from ringwright.costs.learnt.call import LEARNT_OPS, LibraryCall
from ringwright.costs.learnt.table_machine import modelled
from ringwright.costs.learnt.trusted import MeasuredCall
from ringwright.costs.nccl.node_types import placed
from ringwright.costs.nccl.timing import NcclOverride
from ringwright.costs.transports import USUAL_TRANSPORT, carrier

if TYPE_CHECKING:
    from ringwright.costs.calibration import Calibration
    from ringwright.costs.nccl.graphs import NcclSystem
    from ringwright.costs.nccl.node_types import NodeType
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

LIBRARY = "nccl-2-4"  # of GPUs; RCCL is made from it
OWN = "this machine"  # the owner of what is asked and of what was measured there


def usual_algorithm(collective: Collective, topology: Topology, calibration: Calibration | None = None) -> str:
    """Return the spelling of what does a collective where nothing is said: the library of the fabric's GPUs, else a ring.

    What no ring does is done as Open MPI does it. A calibration is of a release: the answer is for that one.
    """
    if collective.op not in LIBRARY_OPS or node_type(collective, topology) is None:
        known = (("ring", RING_OPS), ("open-mpi", MPI_OPS))
        return next((name for name, ops in known if collective.op in ops), LIBRARY)
    return LIBRARY if calibration is None else f"{LIBRARY}@{modelled(calibration.release)}"


def library_call(
    collective: Collective,
    topology: Topology,
    knobs: Mapping[str, Any],
    sizes_bytes: Sequence[int],
    calibration: Calibration | None = None,
) -> LibraryCall | None:
    """Return the call of NCCL that does a collective with these knobs; None where its ranks are no GPUs.

    None as well for an operation that nothing is learnt of.
    """
    kind = node_type(collective, topology)
    if kind is None or collective.op not in LEARNT_OPS or collective.p < 2:
        return None
    said = "" if calibration is None else calibration.transport
    forced = NcclOverride(*(knobs.get(name) for name in ("algorithm", "protocol", "channels", "buffer_bytes")))
    asked = kind, system_of(collective, topology)
    over = carrier(said, topology.transport or USUAL_TRANSPORT)
    return _call(collective.op, sizes_bytes, *asked, str(knobs.get("release", NEWEST)), over, forced)


def measured_calls(calibration: Calibration, transport: str) -> list[MeasuredCall]:
    """Return what a calibration was fitted to; of one without its tables, the times of its fit at its sizes.

    ``transport``: of the fabric it is put on, for one that does not say its own.
    """
    calls = []
    for table in calibration.tables or _of_the_fit(calibration):
        if table.op not in LEARNT_OPS:
            continue
        over = carrier(calibration.transport, transport or USUAL_TRANSPORT)
        forced = table.forced or NcclOverride()
        call = _call(table.op, table.sizes_bytes, *placed(table.fabric), table.release, over, forced)
        calls.append(MeasuredCall(call, table.times_s))
    return calls


def _call(
    op: str,
    sizes_bytes: Sequence[int],
    kind: NodeType,
    system: NcclSystem,
    release: str,
    transport: str,
    forced: NcclOverride,
) -> LibraryCall:
    """Return a call on the machine that is asked about.

    Its table is named so that who asks for what was measured, the same operation on as many ranks, has its own times.
    """
    chosen = modelled(release)
    given, table = forced if forced != NcclOverride() else None, f"{op} {system.nodes} {system.ranks} {chosen}"
    sizes = tuple(sizes_bytes)
    return LibraryCall(op, sizes, kind, system, chosen, transport, given, OWN, f"{forced}", table)


def _of_the_fit(calibration: Calibration) -> Iterator[MeasuredTimes]:
    """Return the times that a fit says for the operations and sizes that it was made of."""
    from ringwright.costs.calibration import times_s

    sizes = tuple(size for size in calibration.sizes_bytes if size > 0)
    for op in calibration.operations:
        asked = MeasuredTimes(op, calibration.fabric, calibration.release, sizes, (0.0,) * len(sizes))
        yield dataclasses.replace(asked, times_s=tuple(times_s(calibration, asked).tolist()))


def is_of(calibration: Calibration, collective: Collective, topology: Topology) -> bool:
    """Return whether a calibration was measured on GPUs of this kind."""
    kind = node_type(collective, topology)
    return kind is not None and placed(calibration.fabric)[0].capability == kind.capability
