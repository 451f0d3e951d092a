"""A Workload's graph on real ranks: each process computes its own tasks, and operations go through torch.distributed on gloo.

What a rank holds in the end is compared with what the reference says it holds (``ringwright.graph.algebra.meaning``), to the bit.
Reduce-scatters are an exchange and a sum: gloo's own moves the bytes of an all-reduce. A sum that the policy cuts is sent in as
many pieces, as far as its numbers go.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.execute.rank_host import here
from ringwright.execute.rank_processes import run_ranks
from ringwright.execute.torch_ranks import require_torch
from ringwright.formats.exports.workload_json import workload_json
from ringwright.formats.sources.programs.workload_json import read_workload
from ringwright.graph.algebra.equality import outputs
from ringwright.graph.algebra.meaning import carry_out
from ringwright.graph.algebra.movement import Held, dim_of
from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import operations
from ringwright.model.workload import Payload, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_RANKS = 16
MOST_S, MOST_DIMS = 300.0, 8


def differing(workloads: Sequence[Workload], *, steps: int = 2, seed: int = 0) -> dict[int, list[str]]:
    """Carry graphs out on gloo ranks, one process a rank of their mesh, and return which outputs differ from the reference.

    Parameters
    ----------
    workloads
        Graphs on one mesh of at most 16 ranks.
    steps, seed
        Of how many steps, from which inputs.

    Returns
    -------
    dict
        For each graph, by its place, "value on rank" of what differs; nothing where all is equal.

    Raises
    ------
    UsageError
        For graphs on several meshes, or on too many ranks.
    RanksFailedError
        Where a rank died, or the ranks came to no end.
    """
    require_torch()
    ranks = {each.mesh.size for each in workloads}
    if len(ranks) != 1 or max(ranks) > MOST_RANKS:
        told = ", ".join(map(str, sorted(ranks)))
        raise UsageError(f"graphs on {told} ranks", remedy=f"one number of ranks, at most {MOST_RANKS}")
    with tempfile.TemporaryDirectory(prefix="ringwright-") as name:
        folder = Path(name)
        for at, each in enumerate(workloads):
            (folder / f"graph.{at}.json").write_bytes(workload_json(each))
        (folder / "asked.json").write_text(json.dumps({"ranks": max(ranks), "steps": steps, "seed": seed}))
        run_ranks(__spec__.name, folder, here(max(ranks)), MOST_S)
        return {at: _compared(folder, at, each, steps, seed) for at, each in enumerate(workloads)}


def _compared(folder: Path, at: int, workload: Workload, steps: int, seed: int) -> list[str]:
    reference = carry_out(workload, steps=steps, seed=seed)
    wrong = []
    for rank in range(workload.mesh.size):
        with np.load(folder / f"{at}.{rank}.npz") as held:
            for name in outputs(workload):
                for (step, batch), by_rank in reference.of(name).items():
                    key = f"{name}|{step}|{batch}"
                    if rank in by_rank and not (key in held and np.array_equal(held[key], by_rank[rank])):
                        wrong.append(f"{name} on rank {rank}")
    return list(dict.fromkeys(wrong))


class _Gloo:
    """One rank's operations; groups are made once, in one order on all ranks."""

    def __init__(self, rank: int, workloads: Sequence[Workload]) -> None:
        self.torch = require_torch()
        self.rank = rank
        self.pieces: dict[str, int] = {}  # by payload, of the graph that is carried out
        self.groups: dict[tuple[int, ...], Any] = {}
        for workload in workloads:
            for payload in workload.payloads:
                for each in range(workload.mesh.size):
                    ranks = workload.mesh.group(payload.axes, each)
                    if ranks not in self.groups:
                        self.groups[ranks] = self.torch.distributed.new_group(list(ranks))

    def cutting(self, workload: Workload) -> None:
        """Send the sums of a graph in as many pieces as its policy says."""
        self.pieces = {each.payloads[0].name: each.pieces for each in operations(workload) if len(each.payloads) == 1}

    def carry(self, payload: Payload, held: Held, workload: Workload) -> Held:
        """Return what this rank holds after an operation; nothing where it takes no part."""
        if payload.op == "send-recv":
            return self._handed(payload, held, workload)
        if self.rank not in held:
            return {}
        operations: dict[str, Callable[..., Any]] = {
            "all-reduce": self._sum,
            "push-pull": self._sum,
            "reduce-scatter": self._scatter,
            "all-gather": self._gather,
            "all-to-all": self._exchange,
            "broadcast": self._broadcast,
            "reduce": self._reduce,
            "shift": self._shift,
            "copy": self._shift,
        }
        if payload.op not in operations:
            raise UsageError(f"a {payload.op} is not carried out on gloo ranks", where=payload.name)
        ranks = workload.mesh.group(payload.axes, self.rank)
        array = np.ascontiguousarray(held[self.rank])
        return {self.rank: operations[payload.op](payload, array, ranks, workload)}

    def _handed(self, payload: Payload, held: Held, workload: Workload) -> Held:
        """Send to the rank of the other class that lies alike, or receive from it: the shape first, then the numbers."""
        mesh, classes = workload.mesh, {each.name: each.at for each in workload.classes}
        own, peer, coordinates = classes[payload.of], classes[payload.peer], mesh.place(self.rank)
        received: Held = {}
        if all(coordinates[axis] == at for axis, at in peer.items()):
            source = mesh.rank({**coordinates, **own})
            shape = self.torch.empty(MOST_DIMS, dtype=self.torch.int64)
            self.torch.distributed.recv(shape, source)
            tensor = self.torch.empty([each for each in shape.tolist() if each >= 0], dtype=self.torch.int64)
            self.torch.distributed.recv(tensor, source)
            received = {self.rank: tensor.numpy()}
        if self.rank in held:
            tensor, to = self._tensor(np.ascontiguousarray(held[self.rank])), mesh.rank({**coordinates, **peer})
            shape = self.torch.tensor([*tensor.shape, *[-1] * (MOST_DIMS - tensor.dim())])
            self.torch.distributed.send(shape, to)
            self.torch.distributed.send(tensor, to)
        return received

    def _tensor(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(np.array(array))

    def _sum(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        tensor = self._tensor(array)
        many = max(1, min(self.pieces.get(payload.name, 1), tensor.numel()))
        for piece in tensor.view(-1).tensor_split(many):
            self.torch.distributed.all_reduce(piece, group=self.groups[ranks])
        return tensor.numpy()

    def _all_to_all(self, blocks: list[np.ndarray], ranks: tuple[int, ...]) -> list[np.ndarray]:
        sent = self._tensor(np.stack([np.ascontiguousarray(block) for block in blocks]))
        received = self.torch.empty_like(sent)
        self.torch.distributed.all_to_all_single(received, sent, group=self.groups[ranks])
        return list(received.numpy())

    def _scatter(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        at = dim_of(workload.value[payload.result], payload.axes)
        blocks = self._all_to_all(np.split(array, len(ranks), axis=at), ranks)
        return sum(blocks[1:], blocks[0])

    def _gathered(self, array: np.ndarray, ranks: tuple[int, ...]) -> list[np.ndarray]:
        tensor = self._tensor(array)
        parts = [self.torch.empty_like(tensor) for _ in ranks]
        self.torch.distributed.all_gather(parts, tensor, group=self.groups[ranks])
        return [part.numpy() for part in parts]

    def _gather(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        at = dim_of(workload.value[payload.source], payload.axes)
        return np.concatenate(self._gathered(array, ranks), axis=at)

    def _exchange(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        old, new = (dim_of(workload.value[name], payload.axes) for name in (payload.source, payload.result))
        return np.concatenate(self._all_to_all(np.split(array, len(ranks), axis=new), ranks), axis=old)

    def _broadcast(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        tensor = self._tensor(array)
        self.torch.distributed.broadcast(tensor, ranks[payload.root], group=self.groups[ranks])
        return tensor.numpy()

    def _reduce(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        tensor = self._tensor(array)
        self.torch.distributed.reduce(tensor, ranks[payload.root], group=self.groups[ranks])
        return tensor.numpy() if self.rank == ranks[payload.root] else np.zeros_like(array)

    def _shift(self, payload: Payload, array: np.ndarray, ranks: tuple[int, ...], workload: Workload) -> Any:
        me, count = ranks.index(self.rank), len(ranks)
        to, source = ranks[(me - payload.hops) % count], ranks[(me + payload.hops) % count]
        tensor, received = self._tensor(array), self._tensor(array)
        if to == self.rank:
            return received.numpy()
        sending = self.torch.distributed.isend(tensor, to)
        self.torch.distributed.recv(received, source)
        sending.wait()
        return received.numpy()


def main() -> int:
    """Be one rank: carry out every graph of a folder and leave what is held there."""
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    asked = json.loads((folder / "asked.json").read_text())
    ranks, steps, seed = asked["ranks"], asked["steps"], asked["seed"]
    torch = require_torch()
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(folder / "store"), ranks)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    workloads = [read_workload(folder / f"graph.{at}.json") for at in range(len(list(folder.glob("graph.*.json"))))]
    gloo = _Gloo(rank, workloads)
    for at, workload in enumerate(workloads):
        gloo.cutting(workload)
        outcome = carry_out(workload, steps=steps, seed=seed, rank=rank, carry=gloo.carry)
        held = {
            f"{name}|{step}|{batch}": by_rank[rank]
            for name in outputs(workload)
            for (step, batch), by_rank in outcome.of(name).items()
            if rank in by_rank
        }
        np.savez(folder / f"{at}.{rank}.npz", **held)  # type: ignore[arg-type]
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
