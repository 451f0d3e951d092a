"""Hypothesis strategies for tests of your own: collectives of any group and size, fabrics, faults.

Needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import MissingExtraError
from ringwright.model.collective import OPS, PER_RANK, ROOTED, Collective

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from ringwright.model.topology import Topology

PLAIN_FABRICS = ("switch", "full", "ring")


def collectives(
    ops: Sequence[str] = OPS, *, max_ranks: int = 12, max_bytes: int = 1 << 16, v_forms: bool = False
) -> SearchStrategy[Collective]:
    """Draw collectives: any op of ``ops``, group of 1 to ``max_ranks`` (sub-groups and permuted ranks too), ragged sizes, root.

    With ``v_forms`` some carry counts per rank, zero entries among them.
    """
    st = _strategies()

    def draw_one(draw: Any) -> Collective:
        op = draw(st.sampled_from(list(ops)))
        group = draw(groups(max_ranks))
        root = draw(st.integers(0, len(group) - 1)) if op in ROOTED else 0
        dtype = draw(st.sampled_from(["uint8", "float16", "float32", "int64"]))
        if v_forms and op in PER_RANK and draw(st.booleans()):
            most = max(max_bytes // len(group), 1)
            counts = tuple(draw(st.lists(st.integers(0, most), min_size=len(group), max_size=len(group))))
            return Collective(op, group, sum(counts), "uint8", root=root, counts=counts)
        size = draw(st.one_of(st.sampled_from([0, 1, 4, 4 * len(group)]), st.integers(0, max_bytes)))
        return Collective(op, group, 0 if op == "barrier" else size, dtype, root=root)

    strategy: SearchStrategy[Collective] = st.composite(draw_one)()
    return strategy


def groups(max_ranks: int = 12) -> SearchStrategy[Sequence[int]]:
    """Draw groups: all ranks in order, some of them, or in any order."""
    st = _strategies()
    whole = st.integers(1, max_ranks).map(range)
    some = st.lists(st.integers(0, max_ranks - 1), min_size=1, max_size=max_ranks, unique=True).map(tuple)
    strategy: SearchStrategy[Sequence[int]] = st.one_of(whole, some)
    return strategy


def topologies(ranks: int, families: Sequence[str] = PLAIN_FABRICS) -> SearchStrategy[Topology]:
    """Draw fabrics of at least ``ranks`` ranks, of any of ``families``, with rates and latencies of any size."""
    st = _strategies()
    from ringwright.fabrics import fabric

    rate = st.sampled_from([1e9, 12.5e9, 50e9, 450e9])
    latency = st.sampled_from([0.0, 1e-7, 1e-6, 2e-5])
    strategy: SearchStrategy[Topology] = st.builds(
        lambda family, more, rate, latency: fabric(f"{family}:{ranks + more}", rate=rate, latency_s=latency),
        st.sampled_from(list(families)),
        st.integers(0, 2),
        rate,
        latency,
    )
    return strategy


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise MissingExtraError("strategies need hypothesis", extra="test", only=["hypothesis"]) from error
    return strategies
