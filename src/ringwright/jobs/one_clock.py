"""All ranks on one clock, or a refusal that says why: offsets that cannot be known are not drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.analysis.clocks import align
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.trace_tables import rows

if TYPE_CHECKING:
    from ringwright.model.trace import Trace


def one_clock(trace: Trace) -> Trace:
    """Return the Trace with all times on a common clock, its uncertainty in ``meta["clock_note"]`` and in the claims.

    Raises InfeasibleError where ranks cannot be compared.
    """
    import polars as pl

    alignment = align(trace)
    if alignment.refused:
        raise InfeasibleError(
            f"the ranks cannot be put on one timeline: {alignment.refused}",
            where=", ".join(trace.meta.get("inputs", [])[:3]),
            remedy="name the recording of a single rank, or record more steps with all ranks",
        )
    if len(alignment.clocks) < 2:
        return trace
    note = f"{len(alignment.clocks)} ranks on one clock, each within {alignment.uncertainty_s * 1e6:,.1f} us"
    claims = [
        {
            "field": f"clock of rank {clock.rank}",
            "value": f"{clock.offset_s:.9f} s",
            "source": "collective ends",
            "ground": "inferred",
            "confidence": 0.9,
            "note": f"within {clock.uncertainty_s * 1e6:.1f} us, from {clock.common} collectives; drift {clock.drift:.2g}",
        }
        for clock in alignment.clocks.values()
    ]
    tables = {
        **trace.tables,
        "events": alignment.moved(trace.table("events")).lazy(),
        "claims": pl.concat([trace.table("claims"), rows("claims", claims)]).lazy(),
    }
    return replace(trace, tables=tables, meta={**trace.meta, "clock_note": note})
