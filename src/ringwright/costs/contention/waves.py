"""How long a kernel of output tiles takes, in tiles one after another, when another kernel holds some multiprocessors.

A persistent kernel starts as many clusters as the GPU has room for; each claims its first tiles when the kernel starts and draws
the others as it goes. Where a neighbour holds multiprocessors, some clusters wait until others have left, and only then work off
what they claimed: a few multiprocessors can cost a whole turn, or two. A kernel with one block a tile only gets fewer at once.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cache

from ringwright.ground.errors import UsageError

CLAIMED = 2  # tiles that a cluster has claimed before it runs: seen in products of one, two and more turns on an H100
BROKEN = 3  # clusters for which held multiprocessors, scattered as they are, leave no neighbours
FEW = 2  # so many held multiprocessors break none


@dataclass(frozen=True)
class TileKernel:
    """A persistent kernel of output tiles: ``rows`` x ``columns`` numbers each, ``cluster`` blocks that start together.

    ``blocks`` is its grid where that is known (0: as many as there are multiprocessors, or tiles).
    """

    rows: int
    columns: int
    cluster: int = 2
    blocks: int = 0

    def __post_init__(self) -> None:
        """Refuse what no kernel can be: UsageError."""
        if min(self.rows, self.columns, self.cluster) < 1 or self.blocks < 0:
            raise UsageError(
                f"no kernel has tiles of {self.rows} x {self.columns} in clusters of {self.cluster}",
                remedy="numbers of 1 and more, as in TileKernel(128, 256)",
            )

    def tiles(self, m: int, n: int) -> int:
        """Return the tiles of an m x n result; what does not fill one takes one."""
        return -(-m // self.rows) * -(-n // self.columns)


def room(sms: int, held: int, cluster: int = 1) -> int:
    """Return how many clusters of blocks fit beside ``held`` of ``sms`` multiprocessors, a block on each; at least 1.

    Single blocks take any that is free; clusters need neighbours. UsageError where none is left or fewer than none are held.
    """
    if not 0 <= held < sms:
        raise UsageError(f"{held} of {sms} multiprocessors are held", remedy=f"hold 0 to {sms - 1} of them")
    broken = BROKEN if cluster > 1 and held > FEW else 0
    return max((sms - held) // cluster - broken, 1)


def turns(kernel: TileKernel, m: int, n: int, sms: int, held: int = 0) -> int:
    """Return the tiles one after another that an m x n result takes beside ``held`` of ``sms`` multiprocessors.

    Never fewer for more held ones. UsageError where none is left.
    """
    work, started = _clusters(kernel, m, n, sms)
    return _worst(work, started, min(started, room(sms, held, kernel.cluster)))


def gets_in(kernel: TileKernel, m: int, n: int, sms: int, wanted: int) -> float:
    """Return the share of a kernel's time after which another finds ``wanted`` multiprocessors: 0 where it leaves as many.

    Else the last of its turns must have begun, in which some clusters have nothing to do; all of it where none has.
    """
    work, started = _clusters(kernel, m, n, sms)
    if started * kernel.cluster + wanted <= sms:
        return 0.0
    return (work // started) / -(-work // started)


def _clusters(kernel: TileKernel, m: int, n: int, sms: int) -> tuple[int, int]:
    """Return the tiles of an m x n result for each block of a cluster, all clusters together, and the clusters that start."""
    work = -(-kernel.tiles(m, n) // kernel.cluster)
    return work, max(1, min(min(kernel.blocks or sms, sms) // kernel.cluster, work))


def queued_turns(tiles: int, sms: int, held: int = 0, each: int = 1) -> int:
    """Return the turns of a kernel with one block a tile, ``each`` of which fit a multiprocessor: it draws none beforehand."""
    return -(-tiles // (room(sms, held) * each))


@cache
def _worst(work: int, started: int, resident: int) -> int:
    """Return the turns for as many resident clusters, or for more where those would take longer: claims fall as they fall."""
    here = _turns(work, started, resident)
    return here if resident >= started else max(here, _worst(work, started, resident + 1))


def _turns(work: int, started: int, resident: int) -> int:
    """Return when the last cluster ends: ``resident`` begin, each of the others follows when one has left."""
    if resident >= started:
        return -(-work // started)
    claimed = [len(range(each, min(work, CLAIMED * started), started)) for each in range(started)]
    pool = work - sum(claimed)
    ends = [claimed[each] + pool // resident + (each < pool % resident) for each in range(resident)]
    last = max(ends)
    heapq.heapify(ends)
    for tiles in claimed[resident:]:
        end = heapq.heappop(ends) + tiles
        last = max(last, end)
        heapq.heappush(ends, end)
    return last
