"""What torch.distributed does by itself, on the buffers of a collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.execute.arithmetic import element
from ringwright.model.collective import PREFIXES

if TYPE_CHECKING:
    from ringwright.execute.native import Buffers
    from ringwright.model.collective import Collective

Prepare = Callable[["Buffers"], Callable[[], object]]


def native(torch: Any, device: Any, collective: Collective) -> Prepare | str:
    """Return what makes a run of the collective from its buffers, or why there is none."""
    kind = element(collective)
    if kind in ("uint32", "uint64", "float8") and collective.reduces:
        return f"torch.distributed does not add {kind}"
    counts = collective.block_bytes
    even = collective.op == "all-to-all" or len({int(each) for each in counts}) <= 1
    if not even:
        return f"torch.distributed wants equal blocks for {collective.op}; {collective.size_bytes} B are not"
    if collective.op in ("send-recv", *PREFIXES):
        return f"torch.distributed has no {collective.op} of its own"
    moved_as = kind if collective.reduces else "uint8"  # what is only moved goes as bytes: gloo knows few types
    return lambda buffers: _Tensors(torch, device, buffers, moved_as).prepared()


class _Tensors:
    """The buffers as PyTorch sees them: the same memory on a CPU, copies around each run on a GPU."""

    def __init__(self, torch: Any, device: Any, buffers: Buffers, kind: str) -> None:
        self._torch, self._buffers, self._cpu = torch, buffers, device.type == "cpu"
        self._dtype = getattr(torch, kind)
        self.near = [self._seen(buffers.send), self._seen(buffers.receive)]
        self.send, self.receive = (each if self._cpu else torch.empty_like(each, device=device) for each in self.near)

    def _seen(self, array: Any) -> Any:
        seen = self._torch.from_numpy(array.view("uint8"))
        return seen if seen.dtype == self._dtype else seen.view(self._dtype)

    def prepared(self) -> Callable[[], object]:
        """Return one run: a collective in place starts from a fresh copy the first time only."""
        call = getattr(self, "_" + self._buffers.collective.op.replace("-", "_"))()
        if self._cpu:
            return call  # type: ignore[no-any-return]

        def on_gpu() -> None:
            self.send.copy_(self.near[0])
            call()
            self.near[1].copy_(self.receive)

        return on_gpu

    @property
    def _dist(self) -> Any:
        return self._torch.distributed

    def _operator(self) -> Any:
        ops = self._dist.ReduceOp
        kinds = {"sum": ops.SUM, "avg": ops.SUM, "prod": ops.PRODUCT, "max": ops.MAX, "min": ops.MIN}
        return kinds[self._buffers.collective.reduce_op]

    def _once_copied(self, call: Callable[[Any], object], target: Any) -> Callable[[], object]:
        """In place on ``target``, which takes the contribution the first time."""
        fresh = [True]

        def run() -> None:
            if fresh:
                target.copy_(self.send)
                fresh.clear()
            call(target)

        return run

    def _all_reduce(self) -> Callable[[], object]:
        operator = self._operator()
        return self._once_copied(lambda target: self._dist.all_reduce(target, operator), self.receive)

    def _reduce(self) -> Callable[[], object]:
        operator, root = self._operator(), self._buffers.collective.root
        mine = self._buffers.rank == root
        target = self.receive if mine else self._torch.empty_like(self.send)
        return self._once_copied(lambda buffer: self._dist.reduce(buffer, root, operator), target)

    def _broadcast(self) -> Callable[[], object]:
        root = self._buffers.collective.root
        if self._buffers.rank == root:
            return self._once_copied(lambda buffer: self._dist.broadcast(buffer, root), self.receive)
        return lambda: self._dist.broadcast(self.receive, root)

    def _reduce_scatter(self) -> Callable[[], object]:
        operator = self._operator()
        return lambda: self._dist.reduce_scatter_tensor(self.receive, self.send, operator)

    def _all_gather(self) -> Callable[[], object]:
        return lambda: self._dist.all_gather_into_tensor(self.receive, self.send)

    def _gather(self) -> Callable[[], object]:
        root, p = self._buffers.collective.root, self._buffers.collective.p
        parts = list(self.receive.chunk(p)) if self._buffers.rank == root else None
        return lambda: self._dist.gather(self.send, parts, root)

    def _scatter(self) -> Callable[[], object]:
        root, p = self._buffers.collective.root, self._buffers.collective.p
        parts = list(self.send.chunk(p)) if self._buffers.rank == root else None
        return lambda: self._dist.scatter(self.receive, parts, root)

    def _all_to_all(self) -> Callable[[], object]:
        buffers = self._buffers
        size = buffers.kind.itemsize
        leaving, coming = ([size * n for n in buffers.counts(blocks)] for blocks in (buffers.given, buffers.wanted))
        return lambda: self._dist.all_to_all_single(self.receive, self.send, coming, leaving)

    def _barrier(self) -> Callable[[], object]:
        return self._dist.barrier  # type: ignore[no-any-return]
