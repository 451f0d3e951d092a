"""What a rank launched and ran, arranged for the question which communication is fused with what: times in microseconds."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.analysis.kernels import COMMUNICATION
from ringwright.costs.ring_overlap import looped_time

if TYPE_CHECKING:
    import polars as pl

    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

GATHER_MATMUL, MATMUL_SCATTER = "all-gather-matmul", "matmul-reduce-scatter"
BUCKETED_GATHER, GRADIENT_BUCKET, COPIES = "bucketed-all-gather", "gradient-bucket", "copy-engine"
PRODUCTS = (GATHER_MATMUL, MATMUL_SCATTER)
LIBRARIES = ("nccl", "rccl")
_PRODUCT = re.compile(
    r"(?<!fb)gemm|cublas|nvjet|Cijk_|wgmma|matmul|triton_\w*(?:_mm|mm_)", re.IGNORECASE
)  # FBGEMM also looks up
_COPY = re.compile(
    r"CatArrayBatchedCopy|direct_copy_kernel|split_with_sizes_copy|chunk_cat|triton_poi_fused_(?:cat|clone|copy)"
)


@dataclass(frozen=True)
class Fusion:
    """A fusion that was due: whether it fired, where, and what its communication and its product took.

    ``fault`` says why it did not fire, in words; ``product_us`` is None where no product belongs to it. ``size_bytes``: what
    would be one bucket, None where a part does not say its size.
    """

    pattern: str
    rank: int | None
    iteration: int | None
    layer: str
    communicator: int | None
    fired: bool
    file: str | None = None
    event: int | None = None
    fault: str = ""
    comm_us: float = 0.0
    product_us: float | None = None
    nranks: int | None = None
    size_bytes: int | None = None

    @property
    def looped_us(self) -> float | None:
        """The most that a loop over the ranks' blocks can gain, None where product or ranks are unknown.

        Pieces are taken as efficient as the whole, and a ring as fast as what the library does; where a loop takes longer than
        both one after the other, the pair is best left alone.
        """
        if self.product_us is None or not self.nranks or self.nranks < 2:
            return None
        looped = looped_time(self.product_us, self.comm_us, self.nranks)
        return max(0.0, self.product_us + self.comm_us - looped)


@dataclass
class FusionRows:
    """One rank. ``talk``: communication with a kernel, by start; ``asked``: all of it that was called, by call.

    ``fused``: operations that are collective and product in one; ``fallen``: those that ran as two after all.
    """

    rank: int | None
    talk: list[Row]
    asked: list[Row]
    copies: list[Row]
    fused: list[Row]
    fallen: list[Row]
    gradients: list[float]
    backward: set[int]
    is_ddp: bool
    compute: Row
    roles: dict[int, str | None] = field(default_factory=dict)
    _order: Any = field(default=None, repr=False)
    _called: Any = field(default=None, repr=False)

    def is_backward(self, row: Row) -> bool:
        """Say whether a row was launched by a thread of the backward pass."""
        return row["thread"] is not None and row["thread"] in self.backward

    def phase(self, row: Row) -> str:
        """Return backward, or the name that the recording gives the phase; "" where nothing tells."""
        return "backward" if self.is_backward(row) else str(row["phase"] or "")

    def in_fused(self, enqueue_s: float | None) -> bool:
        """Say whether something was launched by a fused operation."""
        return _within(self.fused, enqueue_s)

    def in_operation(self, enqueue_s: float | None) -> bool:
        """Say whether something was launched by an operation that is, or should have been, a fused one."""
        return _within(self.fused, enqueue_s) or _within(self.fallen, enqueue_s)

    def exposed_shares(self) -> list[float]:
        """Return, per operation of ``talk``, the share of its time in which nothing was computed."""
        import numpy as np

        from ringwright.analysis.intervals import covered, union

        busy = union(self.compute["start"], self.compute["end"])
        times = np.array([begin_end(row) for row in self.talk], float).reshape(-1, 2)
        lasted = times[:, 1] - times[:, 0]
        shares: list[float] = (1 - covered(busy, times[:, 0], times[:, 1]) / np.maximum(lasted, 1e-9)).tolist()
        return shares

    def counted_gradients(self, after_s: float, until_s: float) -> int:
        """Return how many gradients came to be between two moments of the host."""
        return bisect_right(self.gradients, until_s) - bisect_right(self.gradients, after_s)

    def launched_last(self, moment_us: float) -> int | None:
        """Return the compute kernel that was launched last before a moment of the host, None without one."""
        import numpy as np

        if self._order is None:
            called = self.compute["enqueue"]
            order = np.argsort(called, kind="stable")  # those without a launch come last
            self._order, self._called = order, called[order][: int(np.isfinite(called).sum())]
        at = int(np.searchsorted(self._called, moment_us)) - 1
        return int(self._order[at]) if at >= 0 else None

    def next_compute(self, moment_us: float) -> int:
        """Return the first compute kernel, by start, that starts at a moment or later."""
        return bisect_left(self.compute["start"], moment_us)


def _within(operators: list[Row], moment_s: float | None) -> bool:
    if moment_s is None or not operators:
        return False
    number = bisect_right(operators, moment_s, key=lambda row: row["start_s"]) - 1
    return number >= 0 and bool(moment_s <= operators[number]["start_s"] + operators[number]["duration_s"])


def is_product(kernel: str) -> bool:
    """Say whether a kernel's name is that of a matrix product."""
    return _PRODUCT.search(kernel) is not None


def is_copy(kernel: str) -> bool:
    """Say whether a kernel only puts data in another order."""
    return _COPY.search(kernel) is not None


def fusion_rows(trace: Trace) -> list[FusionRows]:
    """Return the ranks that computed on a device, in order."""
    import polars as pl

    columns = ["rank", "kind", "op", "text", "communicator", "nranks", "size_bytes", "datatype", "stream", "iteration"]
    columns += ["phase", "layer", "role", "thread", "kernel", "kernel_class", "enqueue_s", "start_s", "duration_s"]
    mine = pl.col("kind").is_in([*COMMUNICATION, "compute", "operator"])
    between = (pl.col("kind") == "memory") & pl.col("kernel").str.contains("PtoP|[Pp]eer to [Pp]eer")
    frame = trace.scan("events").filter(mine | between).select(*columns, "file", "line").collect()
    roles = dict(trace.scan("communicators").select("communicator", "role").collect().rows())
    ranks = frame.partition_by("rank", as_dict=True)
    made = [_of(rank, part, roles) for (rank, *_), part in ranks.items()]
    return sorted((one for one in made if len(one.compute["start"])), key=lambda one: (one.rank is None, one.rank or 0))


def _of(rank: int | None, frame: pl.DataFrame, roles: dict[int, str | None]) -> FusionRows:
    import polars as pl

    talks = frame.filter(pl.col("kind").is_in(COMMUNICATION))
    timed = pl.col("start_s").is_not_null() & pl.col("duration_s").is_not_null()
    operators = frame.filter((pl.col("kind") == "operator") & timed).sort("start_s")
    fused, fallen = _fused(operators.filter(pl.col("op").is_in(PRODUCTS)).rows(named=True), talks)
    gradients = operators.filter(pl.col("op") == "gradient")["start_s"].to_list()
    backward = operators.filter(pl.col("op") == "backward")["thread"].drop_nulls().to_list()
    forward = operators.filter(pl.col("op") == "ddp")["thread"].drop_nulls().to_list()
    steps = set(forward)
    return FusionRows(
        rank,
        talks.filter(timed & pl.col("kernel").is_not_null()).sort("start_s").rows(named=True),
        talks.filter(pl.col("enqueue_s").is_not_null()).sort("enqueue_s", "line").rows(named=True),
        frame.filter((pl.col("kind") == "memory") & timed).sort("start_s").rows(named=True),
        fused,
        fallen,
        gradients,
        {thread for thread in backward if thread not in steps},
        bool(forward),
        _compute(frame.filter((pl.col("kind") == "compute") & timed).sort("start_s")),
        roles,
    )


def _fused(rows: list[Row], talks: pl.DataFrame) -> tuple[list[Row], list[Row]]:
    """Return the outermost fused operations, and those that launched a collective of the library: they fell back to two."""
    import polars as pl

    library = talks.filter(
        pl.col("kernel_class").is_in(LIBRARIES) & pl.col("op").is_in(["all-gather", "reduce-scatter"])
    )
    called = library["enqueue_s"].drop_nulls().sort().to_list()
    fused: list[Row] = []
    fallen: list[Row] = []
    end = float("-inf")
    for row in rows:
        until = row["start_s"] + row["duration_s"]
        if until > end:
            end = until
            is_two = bisect_left(called, row["start_s"]) < bisect_right(called, until)
            (fallen if is_two else fused).append(row)
    return fused, fallen


def _compute(frame: pl.DataFrame) -> Row:
    starts = frame["start_s"].to_numpy() * 1e6
    return {
        "start": starts,
        "end": starts + frame["duration_s"].to_numpy() * 1e6,
        "enqueue": frame["enqueue_s"].fill_null(float("nan")).to_numpy() * 1e6,
        "kernel": frame["kernel"].to_list(),
    }


def begin_end(row: Row) -> tuple[float, float]:
    """Return when a row of the device began and ended, in microseconds."""
    return row["start_s"] * 1e6, (row["start_s"] + row["duration_s"]) * 1e6
