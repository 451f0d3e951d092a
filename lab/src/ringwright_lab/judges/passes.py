"""Kernels that only pass over tensors, one after another or fused into one: what the memory carries, less what the cache has.

A kernel reads what a former one has touched from the cache where all that was touched since fits it. Fusing saves the starts and
the tensors between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.costs.contention.multiprocessors import Multiprocessors
from ringwright.ground.errors import UsageError

PASS_S = 3.2e-6  # of a kernel besides: start, first and last bytes
COLD_S = 1.2e-6  # of the first one: nothing it reads is in the cache
PASS_REACHED = 0.855  # share of the memory's peak


@dataclass(frozen=True)
class TensorPass:
    """One kernel: the tensors it reads and writes, by name; one that it changes in place stands in both."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def touched(self) -> set[str]:
        """The tensors it reads or writes, each once."""
        return {*self.reads, *self.writes}


def traffic(passes: Sequence[TensorPass], tensor_bytes: int, cache_bytes: int) -> int:
    """Return bytes that pass the memory, all tensors of one size: everything written, and what is read and not in the cache."""
    if tensor_bytes < 0:
        raise UsageError(f"no tensor has {tensor_bytes} bytes", remedy="0 bytes and more")
    moved, last = 0, dict[str, int]()
    for number, each in enumerate(passes):
        moved += len(each.writes) + sum(
            name not in last or _since(passes, last[name], number) * tensor_bytes > cache_bytes for name in each.reads
        )
        last |= dict.fromkeys(each.touched, number)
    return moved * tensor_bytes


def _since(passes: Sequence[TensorPass], first: int, now: int) -> float:
    """Return the tensors touched between a byte's use in one kernel and its next: both kernels go through theirs side by side."""
    between = set[str]().union(*(each.touched for each in passes[first + 1 : now]))
    return len(between) + (len(passes[first].touched) + len(passes[now].touched)) / 2


def passes_s(passes: Sequence[TensorPass], tensor_bytes: int, on: Multiprocessors) -> float:
    """Return seconds of the kernels one after another in a queue."""
    return COLD_S + len(passes) * PASS_S + traffic(passes, tensor_bytes, on.cache_bytes) / (PASS_REACHED * on.memory)


def fused(passes: Sequence[TensorPass], kept: Sequence[str] = ()) -> TensorPass:
    """Return one kernel that does the work of all: what one of them wrote stays inside, unless ``kept`` or written last."""
    if not passes:
        raise UsageError("there is nothing to fuse", remedy="one pass and more")
    written: list[str] = []
    reads: list[str] = []
    for each in passes:
        reads += [name for name in each.reads if name not in written and name not in reads]
        written += [name for name in each.writes if name not in written]
    keep = {*kept, *passes[-1].writes, *reads}  # what was there before must hold its new value, too
    return TensorPass(tuple(reads), tuple(name for name in written if name in keep))
