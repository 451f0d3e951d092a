"""Ranks of torch.distributed: Programs over its point-to-point messages, and its own collectives beside them.

On gloo messages go as they are posted (wire ``torch``). NCCL wants the messages of a step in one group, and so does the
wire ``torch-batched``, which works on both; its memory and its additions are then PyTorch's, on the GPU where there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.execute.arena import Action, Arena, ordinary
from ringwright.execute.arithmetic import element
from ringwright.execute.native import Buffers, Bystander
from ringwright.execute.torch_native import native
from ringwright.ground.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.execute.job import RankJob
    from ringwright.execute.push import Wire
    from ringwright.model.collective import Collective

WHOLE = 1 << 40


def require_torch() -> Any:
    """Return PyTorch with its distributed part."""
    try:
        import torch
        import torch.distributed
    except ImportError:
        raise MissingExtraError("ranks of torch.distributed need PyTorch", extra="torch") from None
    return torch


class TorchRanks:
    """One rank of a process group over a file that all see."""

    def __init__(self, job: RankJob, folder: Path, node: int | None) -> None:
        torch = require_torch()
        if node is None:
            raise UsageError("a rank of torch.distributed is told its number")
        self.node, self._torch = node, torch
        torch.set_num_threads(1)
        name = "nccl" if job.backend == "torch-nccl" else "gloo"
        self.device = torch.device("cuda", node % torch.cuda.device_count()) if name == "nccl" else torch.device("cpu")
        store = torch.distributed.FileStore(str(folder / "store"), job.nodes)
        torch.distributed.init_process_group(name, store=store, rank=node, world_size=job.nodes)
        self._wires: dict[str, Wire] = {}

    def wire(self, name: str) -> Wire:
        """Return the wire of this name."""
        kinds: dict[str, Callable[[Any], Wire]] = {"torch": OneByOne, "torch-batched": Batched}
        if name not in kinds:
            raise UsageError(f"ranks of torch.distributed have no wire '{name}'", remedy=f"one of: {', '.join(kinds)}")
        if name not in self._wires:
            self._wires[name] = kinds[name](self._torch)
        return self._wires[name]

    def arena(self, name: str, size: int, collective: Collective) -> Arena:
        """Return ordinary memory, or PyTorch's for a batched wire."""
        if name == "torch":
            return ordinary(size, collective)
        return TorchArena(self._torch, self.device, size, collective)

    def piece_bytes(self, name: str) -> int:
        """Return that messages go whole: each is handed to another thread, which costs more than pieces gain."""
        del name
        return WHOLE

    def native(self, collective: Collective) -> Any:
        """Return the backend's own collective, or the reason why it has none."""
        made = native(self._torch, self.device, collective)
        return made if isinstance(made, str) else Buffers(collective, self.node, made)

    def bystander(self, collective: Collective) -> Any:
        """Return a rank that only looks on."""
        made = native(self._torch, self.device, collective)
        return made if isinstance(made, str) else Bystander()

    def close(self) -> None:
        """Leave the group."""
        self._torch.distributed.destroy_process_group()


class _OneRequest:
    """A message that is posted at once."""

    __slots__ = ("_peer", "_post", "_tag", "_tensors", "_work")

    def __init__(self, post: Any, tensor: Any, peer: int, tag: int) -> None:
        self._post, self._tensors, self._peer, self._tag = post, [tensor], peer, tag
        self._work: Any = None

    def start(self) -> None:
        self._work = self._post(self._tensors, self._peer, self._tag)

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None


class OneByOne:
    """The wire ``torch``; its own only session, for messages between two ranks keep their order."""

    at_once = False

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._group = torch.distributed.group.WORLD

    def session(self) -> OneByOne:
        """Return this wire."""
        return self

    def send(self, peer: int, turn: int, piece: int, buffer: Any) -> _OneRequest:
        """Prepare to send."""
        del piece
        return _OneRequest(self._group.send, self._torch.from_numpy(buffer), peer, turn)

    def receive(self, peer: int, turn: int, piece: int, buffer: Any) -> _OneRequest:
        """Prepare to receive."""
        del piece
        return _OneRequest(self._group.recv, self._torch.from_numpy(buffer), peer, turn)

    def finish(self) -> None:
        """Nothing to add up."""


class _BatchRequest:
    """A message that waits for the others of its step."""

    __slots__ = ("_wire", "operation", "work")

    def __init__(self, wire: Batched, operation: Any) -> None:
        self._wire, self.operation = wire, operation
        self.work: Any = None

    def start(self) -> None:
        self._wire.open.append(self)

    def wait(self) -> None:
        if self._wire.open:
            self._wire.post()
        if self.work is not None:
            self.work.wait()
            self.work = None


class Batched:
    """The wire ``torch-batched``: what was started since the last wait goes out as one group."""

    at_once = True

    def __init__(self, torch: Any) -> None:
        self._distributed = torch.distributed
        self.open: list[_BatchRequest] = []

    def session(self) -> Batched:
        """Return this wire."""
        return self

    def send(self, peer: int, turn: int, piece: int, buffer: Any) -> _BatchRequest:
        """Prepare to send."""
        del piece
        return _BatchRequest(self, self._distributed.P2POp(self._distributed.isend, buffer, peer, tag=turn))

    def receive(self, peer: int, turn: int, piece: int, buffer: Any) -> _BatchRequest:
        """Prepare to receive."""
        del piece
        return _BatchRequest(self, self._distributed.P2POp(self._distributed.irecv, buffer, peer, tag=turn))

    def post(self) -> None:
        """Send out what is open. NCCL answers with one handle for all, gloo with one each."""
        batch, self.open = self.open, []
        works = self._distributed.batch_isend_irecv([each.operation for each in batch])
        for number, each in enumerate(batch):
            each.work = works[number] if len(works) == len(batch) else works[0]

    def finish(self) -> None:
        """Nothing to add up."""


class TorchArena(Arena):
    """Memory and additions of PyTorch."""

    def __init__(self, torch: Any, device: Any, size: int, collective: Collective) -> None:
        kind = element(collective)
        if kind in ("uint32", "uint64", "float8") and collective.reduces:
            raise UsageError(f"PyTorch does not add {kind}", remedy="--dtype float32, or another executor")
        self._torch, self._device = torch, device
        self.raw = torch.zeros(max(size, 1), dtype=torch.uint8, device=device)
        self.kind = getattr(torch, kind, torch.uint8)
        self._into = {
            "sum": torch.add,
            "avg": torch.add,
            "prod": torch.mul,
            "max": torch.maximum,
            "min": torch.minimum,
        }[collective.reduce_op]

    def put(self, at: int, source: Any, *, adds: bool) -> Action:
        """Return what writes or adds."""
        if not adds:
            return self.copy(self.bytes(at, len(source)), source)
        combine, mine, theirs = self._into, self.elements(at, len(source)), source.view(self.kind)
        return lambda: combine(mine, theirs, out=mine)

    def copy(self, target: Any, source: Any) -> Action:
        """Return what copies."""
        return lambda: target.copy_(source)

    def scratch(self, size: int) -> Any:
        """Return memory on the same device."""
        return self._torch.zeros(max(size, 1), dtype=self._torch.uint8, device=self._device)

    def write(self, at: int, values: np.ndarray) -> None:
        """Fill bytes from ordinary memory."""
        self.raw[at : at + len(values)] = self._torch.from_numpy(np.ascontiguousarray(values)).to(self._device)

    def read(self, at: int, size: int) -> np.ndarray:
        """Return a copy in ordinary memory. uint8 of shape (size,)."""
        copied: np.ndarray = self.raw[at : at + size].cpu().numpy().copy()
        return copied

    def settle(self) -> None:
        """Wait for the GPU."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)
