"""Looped products on real ranks: an all-gather before a product, a reduce-scatter behind one, whole and block by block.

Each rank multiplies whole numbers, so that both must agree to the bit, and rests for as long as a device would be busy besides:
ranks share a machine's cores here, and would not there. gloo's own reduce-scatter moves the bytes of an all-reduce; whole, it is
an exchange and a sum.

As a program (``python -m ringwright.execute.looped_products FOLDER RANK``) it is one of these ranks.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringwright.execute.rank_host import Place, here
from ringwright.execute.rank_processes import run_ranks
from ringwright.execute.torch_ranks import require_torch

SIDES = ("gather", "scatter")


@dataclass(frozen=True)
class LoopedProduct:
    """What is measured: blocks of ``rows`` by ``width`` numbers of 4 bytes travel; a product takes ``product_s`` seconds."""

    ranks: int = 4
    rows: int = 256
    width: int = 512
    product_s: float = 0.1
    rounds: int = 5
    timeout_s: float = 60.0

    @property
    def block_bytes(self) -> int:
        """Bytes of one rank's block."""
        return 4 * self.rows * self.width


@dataclass(frozen=True)
class LoopedTimes:
    """Of one side (gather or scatter): seconds whole and looped, of the operation and of the blocks alone, each the least of all
    rounds; whether every rank's results were the same to the bit.
    """

    side: str
    whole_s: float
    looped_s: float
    operation_s: float
    blocks_s: float
    equal: bool

    @property
    def speed_up(self) -> float:
        """How many times as fast the loop is."""
        return self.whole_s / self.looped_s


def measure(job: LoopedProduct, places: Sequence[Place] = ()) -> list[LoopedTimes]:
    """Return the times of both sides, here or at ``places``; RanksFailedError where a rank fails."""
    with tempfile.TemporaryDirectory(prefix="ringwright-looped-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(asdict(job)))
        run_ranks(__spec__.name, folder, places or here(job.ranks), job.timeout_s)
        answers = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(job.ranks)]
    rows = [LoopedTimes(**each) for each in answers[0]]
    return [
        LoopedTimes(**{**asdict(row), "equal": all(answer[at]["equal"] for answer in answers)})
        for at, row in enumerate(rows)
    ]


class _Rank:
    """One rank: its block of numbers, the weights that all have, and both ways to compute."""

    def __init__(self, job: LoopedProduct, rank: int, folder: Path) -> None:
        torch = require_torch()
        dist = torch.distributed
        torch.set_num_threads(1)
        store = dist.FileStore(str(folder / "store"), job.ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=job.ranks)
        self.torch, self.dist, self.job, self.rank = torch, dist, job, rank
        draw = torch.Generator().manual_seed(1)
        self.weights = torch.randint(-4, 5, (job.width, 16), generator=draw).float()
        self.wide = torch.randint(-4, 5, (16, job.width), generator=draw.manual_seed(100 + rank)).float()
        self.own = torch.randint(-4, 5, (job.rows, job.width), generator=draw.manual_seed(200 + rank)).float()
        self.terms = torch.randint(-4, 5, (job.ranks * job.rows, 16), generator=draw.manual_seed(300 + rank)).float()

    def product(self, one: Any, other: Any, share: float) -> Any:
        """Multiply, and take ``share`` of the whole product's time for it."""
        begin_s = time.perf_counter()
        made = one @ other
        time.sleep(max(0.0, self.job.product_s * share - (time.perf_counter() - begin_s)))
        return made

    def shifted(self, block: Any, hops: int = 1) -> tuple[Any, list[Any]]:
        """Begin to send a block to the rank before and to receive the next one's; return what arrives, and what to wait for."""
        arriving, p = self.torch.empty_like(block), self.job.ranks
        sent = self.dist.isend(block, (self.rank - hops) % p)
        return arriving, [self.dist.irecv(arriving, (self.rank + hops) % p), sent]

    # ------------------------------------------------------------------------------------------------------------ gather
    def gathered(self) -> Any:
        blocks = [self.torch.empty_like(self.own) for _ in range(self.job.ranks)]
        self.dist.all_gather(blocks, self.own)
        return self.torch.cat(blocks)

    def gather_whole(self) -> Any:
        return self.product(self.gathered(), self.weights, 1.0)

    def gather_looped(self) -> Any:
        p, block = self.job.ranks, self.own
        made: list[Any] = [None] * p
        for turn in range(p):
            arriving, waits = self.shifted(block) if turn < p - 1 else (None, [])
            made[(self.rank + turn) % p] = self.product(block, self.weights, 1 / p)
            for each in waits:
                each.wait()
            block = arriving
        return self.torch.cat(made)

    # ----------------------------------------------------------------------------------------------------------- scatter
    def scattered(self, whole: Any) -> Any:
        arrived = self.torch.empty_like(whole)
        self.dist.all_to_all_single(arrived, whole)
        return arrived.view(self.job.ranks, self.job.rows, -1).sum(dim=0)

    def scatter_whole(self) -> Any:
        return self.scattered(self.product(self.terms, self.wide, 1.0))

    def scatter_looped(self) -> Any:
        p, rows = self.job.ranks, self.job.rows
        arriving, waits = None, list[Any]()
        for turn in range(1, p + 1):
            block = (self.rank + turn) % p  # the one that travels furthest first, a rank's own last
            made = self.product(self.terms[block * rows : (block + 1) * rows], self.wide, 1 / p)
            for each in waits:
                each.wait()
            total = made if arriving is None else made + arriving
            if turn < p:
                arriving, waits = self.shifted(total)
        return total

    def blocks(self) -> None:
        """Send one block after another round the ring, and compute nothing."""
        block = self.own
        for _ in range(self.job.ranks - 1):
            block, waits = self.shifted(block)
            for each in waits:
                each.wait()

    def least_s(self, run: Callable[[], Any]) -> float:
        """Return the least seconds of all rounds, of which all ranks begin together and the last one counts."""
        times = []
        for _ in range(self.job.rounds):
            self.dist.barrier()
            begin_s = time.perf_counter()
            run()
            took = self.torch.tensor([time.perf_counter() - begin_s])
            self.dist.all_reduce(took, op=self.dist.ReduceOp.MAX)
            times.append(float(took))
        return min(times)

    def sides(self) -> list[LoopedTimes]:
        whole = self.terms @ self.wide
        blocks_s, rows = self.least_s(self.blocks), []
        for side in SIDES:
            one, other = getattr(self, f"{side}_whole"), getattr(self, f"{side}_looped")
            alone = self.gathered if side == "gather" else lambda: self.scattered(whole)
            equal = bool(self.torch.equal(one(), other()))
            rows.append(LoopedTimes(side, self.least_s(one), self.least_s(other), self.least_s(alone), blocks_s, equal))
        return rows


def _rank(folder: Path, rank: int) -> None:
    one = _Rank(LoopedProduct(**json.loads((folder / "job.json").read_text())), rank, folder)
    rows = one.sides()
    (folder / f"{rank}.json").write_text(json.dumps([asdict(row) for row in rows]))
    one.dist.barrier()
    one.dist.destroy_process_group()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
