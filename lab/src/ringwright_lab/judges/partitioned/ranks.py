"""One rank of an experiment on gloo: sums as a whole, by levels or in parts; messages beside a sum, in blocks or not.

As a program (``python -m ringwright_lab.judges.partitioned.ranks FOLDER RANK``) it reads ``asked.json`` of the folder, does
its part and leaves ``RANK.json``: seconds, and whether all sums were right.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringwright.execute.torch_ranks import require_torch

FORMS = ("whole", "levels", "levels in chunks", "split", "messages")
CHUNKS = 4
MESSAGE_ELEMENTS = 8 * 1024
EVERY_S = 0.41


@dataclass(frozen=True)
class RanksAsked:
    """A form, ranks (``inside`` neighbours each), elements of 4 bytes, rounds, and the elements of a block (0: none)."""

    form: str
    ranks: int
    elements: int
    rounds: int = 3
    inside: int = 2
    block: int = 0
    share: float = 0.8


class _Rank:
    def __init__(self, asked: RanksAsked, rank: int, torch: Any) -> None:
        self.asked, self.rank, self.torch, self.distributed = asked, rank, torch, torch.distributed
        m, n = asked.inside, asked.ranks
        self.near = self._groups([tuple(range(at, at + m)) for at in range(0, n, m)])
        self.far = self._groups([tuple(range(at, n, m)) for at in range(m)])

    def _groups(self, listed: list[tuple[int, ...]]) -> Any:
        made = [(ranks, self.distributed.new_group(list(ranks))) for ranks in listed]  # all ranks, in one order
        return next(group for ranks, group in made if self.rank in ranks)

    def sums(self) -> tuple[list[float], bool]:
        """Return the seconds of each round, and whether every element was the sum over ranks."""
        carry: Callable[[Any], None] = {
            "whole": self._whole,
            "levels": self._levels,
            "levels in chunks": self._chunked,
            "split": self._split,
        }[self.asked.form]
        times, right = [], True
        for _ in range(self.asked.rounds + 1):
            tensor = self.torch.arange(self.asked.elements, dtype=self.torch.int32) % 1000 + self.rank
            self.distributed.barrier()
            begun = time.monotonic()
            carry(tensor)
            times.append(time.monotonic() - begun)
            right = right and self._is_sum(tensor)
        return times[1:], right

    def _is_sum(self, tensor: Any) -> bool:
        members = range(self.rank % 2, self.asked.ranks, 2) if self.asked.form == "split" else range(self.asked.ranks)
        parts = self.torch.arange(self.asked.elements, dtype=self.torch.int32) % 1000
        wanted = parts * len(members) + sum(members)
        mine = self._mine() if self.asked.form == "split" else slice(None)
        return bool(self.torch.equal(tensor[mine], wanted[mine]))

    def _whole(self, tensor: Any) -> None:
        self.distributed.all_reduce(tensor)

    def _levels(self, tensor: Any) -> None:
        m, torch = self.asked.inside, self.torch
        blocks = tensor.view(m, -1)
        swapped = torch.empty_like(blocks)
        self.distributed.all_to_all_single(
            swapped, blocks, group=self.near
        )  # gloo's scatter moves an all-reduce's bytes
        mine = swapped.sum(0, dtype=tensor.dtype)
        self.distributed.all_reduce(mine, group=self.far)
        self.distributed.all_gather(list(blocks), mine, group=self.near)

    def _chunked(self, tensor: Any) -> None:
        """Sum chunk after chunk across nodes while the next one is summed inside."""
        m, across = self.asked.inside, []
        for chunk in tensor.view(CHUNKS, -1):
            blocks = chunk.view(m, -1)
            swapped = self.torch.empty_like(blocks)
            self.distributed.all_to_all_single(swapped, blocks, group=self.near)
            mine = swapped.sum(0, dtype=tensor.dtype)
            across.append((blocks, mine, self.distributed.all_reduce(mine, group=self.far, async_op=True)))
        for blocks, mine, work in across:
            work.wait()
            self.distributed.all_gather(list(blocks), mine, group=self.near)

    def _mine(self) -> slice:
        """Return the part of a sum that goes over this rank's network: the fast one's ranks are even."""
        edge = round(self.asked.elements * self.asked.share)
        return slice(0, edge) if self.rank % 2 == 0 else slice(edge, self.asked.elements)

    def _split(self, tensor: Any) -> None:
        self.distributed.all_reduce(tensor[self._mine()], group=self.far)

    # -------------------------------------------------------------------------------------------------------- messages
    def messages(self) -> tuple[list[float], bool]:
        """Return how long each message took from when it was ready on rank 0 until rank 1 had it, sums going on beside it.

        A rank does one thing at a time: a message waits for the sum, or the block of it, that is under way.
        """
        torch, asked = self.torch, self.asked
        tensor = torch.zeros(asked.elements, dtype=torch.int32)
        beside = self.distributed.new_group([0, 1])
        due = [at * EVERY_S + EVERY_S for at in range(asked.rounds)]
        stamps = torch.zeros(MESSAGE_ELEMENTS, dtype=torch.float64)
        self.distributed.barrier()
        begun, waits, at = time.monotonic(), list[float](), 0
        blocks = tensor.split(asked.block) if asked.block else (tensor,)
        while at < len(due):
            for block in blocks:
                while at < len(due) and self._agreed(time.monotonic() - begun >= due[at], beside):
                    if self.rank == 0:
                        stamps[0] = begun + due[at]
                        self.distributed.send(stamps, 1)
                    else:
                        self.distributed.recv(stamps, 0)
                        waits.append(time.monotonic() - float(stamps[0]))
                    at += 1
                if at < len(due):
                    self.distributed.all_reduce(block)
        return waits, True

    def _agreed(self, is_due: bool, group: Any) -> bool:
        """Return on both ranks what rank 0 says."""
        word = self.torch.tensor([int(is_due)])
        self.distributed.broadcast(word, 0, group=group)
        return bool(word.item())


def main() -> int:
    """Be one rank."""
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    asked = RanksAsked(**json.loads((folder / "asked.json").read_text()))
    torch = require_torch()
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(folder / "store"), asked.ranks)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=asked.ranks)
    one = _Rank(asked, rank, torch)
    times, right = one.messages() if asked.form == "messages" else one.sums()
    torch.distributed.barrier()
    (folder / f"{rank}.json").write_text(json.dumps({"times_s": times, "right": right, **asdict(asked)}))
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
