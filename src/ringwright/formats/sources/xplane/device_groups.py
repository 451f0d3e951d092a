"""Which devices take part together: replica groups in their four forms, and the device behind a replica and a partition.

Source: hlo.proto and xla_data.proto of openxla/xla, fields 49, 87, 92 and 93 of an instruction, and its modes of collectives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

from ringwright.formats.sources.wire import WireError, fields, numbers

MOST_DEVICES = 1 << 20

Groups = list[list[int]]


@dataclass
class Assignment:
    """The devices of a program: ``devices[partition][replica]``, by their global numbers."""

    replicas: int = 1
    partitions: int = 1
    devices: list[list[int]] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether every replica of every partition has a device."""
        return len(self.devices) == self.partitions and all(len(held) == self.replicas for held in self.devices)

    def every(self) -> list[int]:
        """Return all devices, replica by replica: the order of flattened numbers."""
        return [self.devices[p][r] for r in range(self.replicas) for p in range(self.partitions)]

    def of_flattened(self, number: int) -> int | None:
        """Return the device of replica * partitions + partition, None where there is none."""
        replica, partition = divmod(number, self.partitions)
        return self.devices[partition][replica] if 0 <= replica < self.replicas else None


def assignment(message: bytes) -> Assignment:
    """Return a program's devices; WireError where there are more than anybody has."""
    made = Assignment()
    for number, _, value in fields(message):
        if number == 1 and isinstance(value, int):
            made.replicas = value
        elif number == 2 and isinstance(value, int):
            made.partitions = value
        elif number == 3 and isinstance(value, bytes):
            made.devices.append([each for at, form, held in fields(value) if at == 1 for each in numbers(form, held)])
    if made.replicas * made.partitions > MOST_DEVICES:
        raise WireError(f"a program of {made.replicas} x {made.partitions} devices")
    return made


def listed(message: bytes) -> Groups:
    """Return groups that are written one by one (field 1 of each message: the numbers)."""
    return [[each for at, form, held in fields(message) if at == 1 for each in numbers(form, held)]]


def device_list(message: bytes) -> Groups:
    """Return the groups of a CollectiveDeviceListProto: one by one, or by the rule of ``iota``."""
    groups: Groups = []
    for number, _, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            groups += listed(value)
        elif number == 2 and isinstance(value, bytes):
            groups += iota(value)
    return groups


def iota(message: bytes) -> Groups:
    """Return the groups that 0, 1, 2, ... give when reshaped, transposed and cut into rows of one length."""
    count = size = 0
    dims: list[int] = []
    order: list[int] = []
    for number, kind, value in fields(message):
        if number == 1 and isinstance(value, int):
            count = value
        elif number == 2 and isinstance(value, int):
            size = value
        elif number == 3:
            dims += numbers(kind, value)
        elif number == 4:
            order += numbers(kind, value)
    if not dims:
        dims, order = [count * size], [0]
    return _rows(
        dims, order or [*range(len(dims))], [*range(count * size)] if count * size <= MOST_DEVICES else [], size
    )


def _mesh(message: bytes, sizes: list[int], devices: list[int]) -> None:
    for at, form, held in fields(message):
        if at == 1 and isinstance(held, bytes):
            sizes.append(next((size for key, _, size in fields(held) if key == 2 and isinstance(size, int)), 1))
        elif at == 2:
            devices += numbers(form, held)


def mesh_axes(message: bytes) -> Groups:
    """Return the groups along some axes of a mesh: devices that differ in those axes alone are together."""
    sizes: list[int] = []
    devices: list[int] = []
    chosen: list[tuple[int, int, int]] = []  # axis, product of the sizes before the part, size of the part
    for number, _, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            _mesh(value, sizes, devices)
        elif number == 2:
            chosen.append(_axis(value))
    dims, picked = _split(sizes, chosen)
    others = [each for each in range(len(dims)) if each not in picked]
    total = math.prod(dims)
    if total > MOST_DEVICES or (devices and len(devices) != total):
        raise WireError(f"a mesh of {total} devices that lists {len(devices)}")
    return _rows(dims, others + picked, devices or [*range(total)], math.prod(dims[each] for each in picked))


def _axis(message: bytes) -> tuple[int, int, int]:
    axis, before, size = 0, 1, 0
    for number, _, value in fields(message):
        if number == 1 and isinstance(value, int):
            axis = value
        elif number == 2 and isinstance(value, bytes):
            held = {at: each for at, _, each in fields(value) if isinstance(each, int)}
            before, size = held.get(1, 1), held.get(2, 0)
    return axis, before, size


def _split(sizes: list[int], chosen: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Return the sizes of axes with those cut that are used in part, and which of these are used, in order."""
    cuts: list[set[int]] = [{1, size} for size in sizes]
    for axis, before, size in chosen:
        if axis >= len(sizes) or before < 1 or before * max(size, 1) > sizes[axis]:
            raise WireError(f"axis {axis} of a mesh of {len(sizes)}")
        cuts[axis] |= {before, before * size} if size else set()
    dims: list[int] = []
    at: dict[tuple[int, int], int] = {}
    for axis, held in enumerate(cuts):
        edges = sorted(held)
        for low, high in pairwise(edges):
            if high % low:
                raise WireError(f"axis {axis} of {sizes[axis]} cut at {low} and {high}")
            at[axis, low] = len(dims)
            dims.append(high // low)
    picked = []
    for axis, before, size in chosen:
        end = before * size if size else sizes[axis]
        picked += [at[axis, low] for low in sorted(cuts[axis]) if before <= low < end]
    return dims, picked


def _rows(dims: list[int], order: list[int], flat: list[int], size: int) -> Groups:
    """Return ``flat``, which lies in ``dims``, transposed by ``order`` and cut into rows of ``size``."""
    import numpy as np

    if sorted(order) != [*range(len(dims))] or math.prod(dims) != len(flat) or size < 1 or len(flat) % size:
        raise WireError(f"groups of {size} from {len(flat)} devices in {dims[:8]}")
    rows: Groups = np.array(flat, np.int64).reshape(dims).transpose(order).reshape(-1, size).tolist()
    return rows


def of_devices(groups: Groups, by: Assignment, mode: str) -> Groups:
    """Return groups of global device numbers from groups of a program's own numbers.

    ``mode``: ``flattened`` (replica * partitions + partition), ``partition`` (within each replica), ``replica`` (within each
    partition), or ``replica of all`` (replicas with all their partitions). No groups stand for all. Numbers that the program
    does not have are left out.
    """
    if mode == "flattened":
        return [[d for each in group if (d := by.of_flattened(each)) is not None] for group in groups or [_all(by)]]
    if mode == "partition":
        groups = groups or [[*range(by.partitions)]]
        return [[by.devices[p][r] for p in group if p < by.partitions] for r in range(by.replicas) for group in groups]
    groups = groups or [[*range(by.replicas)]]
    if mode == "replica":
        return [[by.devices[p][r] for r in group if r < by.replicas] for p in range(by.partitions) for group in groups]
    return [[by.devices[p][r] for r in group if r < by.replicas for p in range(by.partitions)] for group in groups]


def _all(by: Assignment) -> list[int]:
    return [*range(by.replicas * by.partitions)]
