"""Native: a node adds numbers of the collective's own type, one contribution after the other.

Holds: rounded once for each addition in that type, so the order in which contributions arrive shows in floats and not in
    integers, which wrap around. NaN, infinities, subnormal numbers and the sign of zero are IEEE 754's.
Source: NVIDIA SHARP (catalogued ops and types); NVLink SHARP, PTX ISA 8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ringwright.ground.knobs import Choices
from ringwright.model.codecs.contributions import NodeSum, in_order, one_of, stacked, unfinite

OPS = ("sum", "prod", "min", "max")
SWITCHES = ("quantum", "quantum-2", "tofino", "fpisa", "fpga")
TOLERANCE = 3e-7
COMBINE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def native(
    given: np.ndarray,
    *,
    op: Annotated[str, Choices(("sum", "prod", "min", "max"))] = "sum",
    order: Sequence[int] | None = None,
) -> NodeSum:
    """Return contributions combined in their own type, of any dtype and of shape (elements,).

    Knobs: ``op`` what they are combined by; ``order`` the workers in the order in which they arrive (as given).
    Raises UsageError for another shape than (workers, elements), an unknown operation and an order that is none.
    """
    one_of("native", "op", op, tuple(COMBINE))
    rows = in_order(stacked(given), order)
    total = rows[0].copy()
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for row in rows[1:]:
            total = COMBINE[op](total, row)
    floats = np.issubdtype(total.dtype, np.floating)
    return NodeSum(total, np.asarray(given), not_finite=unfinite(rows) if floats else 0)


def wire_bytes(item_bytes: int) -> tuple[float, float]:
    """Return bytes of a number to the node and back."""
    return float(item_bytes), float(item_bytes)
