"""The library's own collectives on NumPy buffers, for comparison with a Program that does the same.

Sizes are counted as in ``Collective``: ``send`` and ``receive`` are the whole buffers of this rank, C-contiguous. Reductions are
the library's; an average is a sum, divided afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import DeclinedError, UsageError

if TYPE_CHECKING:
    import numpy as np

Run = Callable[[], None]
OPS = (
    "all-reduce",
    "reduce-scatter",
    "reduce-scatter-block",
    "all-gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all-to-all",
    "barrier",
    "send-recv",
    "scan",
    "exscan",
)
V_FORMS = ("all-gather", "gather", "scatter", "all-to-all", "reduce-scatter")

# Our element types as MPI calls them. The 16-bit reals are extensions, a null type where a library has them not.
_DATATYPES = {
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "uint32": "UINT32_T",
    "int64": "INT64_T",
    "uint64": "UINT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "FLOAT16_T",
    "bfloat16": "BFLOAT16_T",
    "float8": "",
}
_MOVED_AS = {"float16": "UINT16_T", "bfloat16": "UINT16_T", "float8": "UINT8_T"}
_REDUCING = ("all-reduce", "reduce-scatter", "reduce-scatter-block", "reduce", "scan", "exscan")
_REDUCTIONS = {"sum": "SUM", "avg": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN"}


def datatype(dtype: str, *, reduces: bool) -> Any:
    """Return MPI's datatype; DeclinedError for a reduction on a type that this library has not.

    What is only moved goes as bytes of the same width.
    """
    from mpi4py import MPI

    if dtype not in _DATATYPES:
        raise UsageError(f"'{dtype}' is not a data type", remedy=f"one of: {', '.join(_DATATYPES)}")
    if not reduces and dtype in _MOVED_AS:
        return getattr(MPI, _MOVED_AS[dtype])
    mpi_type = getattr(MPI, _DATATYPES[dtype] or "DATATYPE_NULL", MPI.DATATYPE_NULL)
    if mpi_type == MPI.DATATYPE_NULL:
        library = MPI.Get_library_version().split(",")[0].splitlines()[0]
        remedy = "--dtype float32, or our own executor"
        raise DeclinedError(f"this MPI has no reduction on {dtype}", where=library, remedy=remedy)
    return mpi_type


def native(
    comm: Any,
    op: str,
    send: np.ndarray | None = None,
    receive: np.ndarray | None = None,
    *,
    dtype: str = "float32",
    reduce_op: str = "sum",
    root: int = 0,
    counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
    to: int = -1,
) -> Run:
    """Return a callable that does ``op`` once, by the library's own collective.

    ``send`` None: in place, on ``receive`` (a broadcast always is; for all-gather, and at the root of a gather, the own block
    lies in its place). The root of a scatter may leave out ``receive`` to leave its own block where it is.
    ``counts`` are elements, one a rank or rows per pair, and choose the v-form. ``to`` is the receiver of a send-recv,
    whose sender is ``root``. Arrays are of the stored type (bfloat16 as uint16) and are read and written at each call.
    """
    if op not in OPS:
        raise UsageError(f"MPI has no collective '{op}'", remedy=f"one of: {', '.join(OPS)}")
    if counts is not None and op not in V_FORMS:
        raise UsageError(f"{op} has no form with counts", remedy=f"counts go with: {', '.join(V_FORMS)}")
    if op == "barrier":
        return _call(comm.Barrier)
    _require_buffers(op, comm.rank, root, send, receive)
    return _Buffers(comm, op, send, receive, dtype, reduce_op, root, counts, to).run()


def _require_buffers(op: str, rank: int, root: int, send: object, receive: object) -> None:
    """Raise UsageError where a rank lacks a buffer that it needs."""
    is_root = rank == root
    may_lack = is_root if op == "scatter" else op in {"reduce", "gather"} and not is_root
    if receive is None and not may_lack:
        raise UsageError(f"{op} needs a buffer to receive in", where=f"rank {rank}")
    lacks = {"scatter": is_root, "gather": not is_root, "reduce": not is_root and receive is None}.get(op, False)
    if send is None and lacks:
        raise UsageError(f"{op} needs a buffer to send from", where=f"rank {rank}")


def _call(call: Callable[..., Any], *arguments: Any) -> Run:
    def run() -> None:
        call(*arguments)

    return run


class _Buffers:
    """One collective on fixed buffers; each method below returns what does it once."""

    def __init__(
        self, comm: Any, op: str, send: Any, receive: Any, dtype: str, reduce_op: str, root: int, counts: Any, to: int
    ) -> None:
        from mpi4py import MPI

        self.comm, self.op, self.root, self.to, self.counts = comm, op, root, to, counts
        self.kind = datatype(dtype, reduces=op in _REDUCING)
        self.reduction = getattr(MPI, _REDUCTIONS[reduce_op])
        self.divides = reduce_op == "avg"
        self.out = receive
        self.in_place = MPI.IN_PLACE
        self.send: Any = MPI.IN_PLACE if send is None else [send, self.kind]
        self.receive: Any = None if receive is None else [receive, self.kind]

    def run(self) -> Run:
        """Return the callable."""
        form = "v" if self.counts is not None else ""
        make: Callable[[], Run] = getattr(self, f"_{self.op.replace('-', '_')}{form}")
        return make()

    def _averaged(self, run: Run, *, here: bool = True) -> Run:
        if not (self.divides and here):
            return run
        import numpy as np

        p, out = self.comm.size, self.out
        divide = np.floor_divide if np.issubdtype(out.dtype, np.integer) else np.divide

        def averaged() -> None:
            run()
            divide(out, p, out)

        return averaged

    def _all_reduce(self) -> Run:
        return self._averaged(_call(self.comm.Allreduce, self.send, self.receive, self.reduction))

    def _scan(self) -> Run:
        return _call(self.comm.Scan, self.send, self.receive, self.reduction)

    def _exscan(self) -> Run:
        into = self.receive
        if self.comm.rank == 0 and self.send is not self.in_place:  # gets nothing, and may have no room for it
            into = [self.send[0].copy(), self.kind]
        return _call(self.comm.Exscan, self.send, into, self.reduction)

    def _reduce_scatter(self) -> Run:
        """With equal counts, so that the algorithms of the form with counts can be had."""
        share = (self.send if self.send is not self.in_place else self.receive)[0].size // self.comm.size
        return self._scattered([share] * self.comm.size)

    def _reduce_scatterv(self) -> Run:
        return self._scattered(list(self.counts))

    def _scattered(self, counts: list[int]) -> Run:
        arguments = (self.send, self.receive, counts, self.reduction)
        return self._averaged(_call(self.comm.Reduce_scatter, *arguments))

    def _reduce_scatter_block(self) -> Run:
        return self._averaged(_call(self.comm.Reduce_scatter_block, self.send, self.receive, self.reduction))

    def _all_gather(self) -> Run:
        return _call(self.comm.Allgather, self.send, self.receive)

    def _all_gatherv(self) -> Run:
        return _call(self.comm.Allgatherv, self.send, self._with_counts(self.out))

    def _with_counts(self, array: Any) -> Any:
        return None if array is None else [array, list(self.counts), self.kind]

    def _broadcast(self) -> Run:
        return _call(self.comm.Bcast, self.receive, self.root)

    def _reduce(self) -> Run:
        here = self.comm.rank == self.root
        source = self.receive if self.send is self.in_place and not here else self.send
        run = _call(self.comm.Reduce, source, self.receive if here else None, self.reduction, self.root)
        return self._averaged(run, here=here)

    def _gather(self) -> Run:
        here = self.comm.rank == self.root
        return _call(self.comm.Gather, self.send, self.receive if here else None, self.root)

    def _gatherv(self) -> Run:
        into = self._with_counts(self.out) if self.comm.rank == self.root else None
        return _call(self.comm.Gatherv, self.send, into, self.root)

    def _scatter(self) -> Run:
        source = self.send if self.comm.rank == self.root else None
        return _call(self.comm.Scatter, source, self._or_in_place(), self.root)

    def _scatterv(self) -> Run:
        source = self._with_counts(self.send[0]) if self.comm.rank == self.root else None
        return _call(self.comm.Scatterv, source, self._or_in_place(), self.root)

    def _or_in_place(self) -> Any:
        return self.in_place if self.receive is None else self.receive

    def _all_to_all(self) -> Run:
        return _call(self.comm.Alltoall, self.send, self.receive)

    def _all_to_allv(self) -> Run:
        me = self.comm.rank
        outward, inward = list(self.counts[me]), [row[me] for row in self.counts]
        into = [self.out, inward, self.kind]
        source = self.send if self.send is self.in_place else [self.send[0], outward, self.kind]
        return _call(self.comm.Alltoallv, source, into)

    def _send_recv(self) -> Run:
        me, buffer = self.comm.rank, self.receive
        if me == self.root:
            return _call(self.comm.Send, self.send if self.send is not self.in_place else buffer, self.to)
        return _call(self.comm.Recv, buffer, self.root) if me == self.to else lambda: None
