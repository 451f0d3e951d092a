"""Where times of a simulation come from, for a terminal: what was learnt, what is outside of it, where models disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.costs.probable import CORRECTED, LEARNT, PACKETS, PRIOR
from ringwright.ground.units import format_size
from ringwright.reports import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ringwright.calls.simulated_document import Disagreement, SimulatedCalls, SimulatedRow, UsualTransport

ASKED = "times of the engine that was asked for; intervals of the most probable time, "
OUTSIDE = {
    "transport": "the transport",
    "operation": "the operation on this transport",
    "nodes": "the number of nodes",
    "gpus": "the number of GPUs",
    "size": "the size",
    "release": "the NCCL release",
    "gpu": "the GPU",
    "calibration": "the GPUs of the calibration, which are others",
}


MODELS = {LEARNT: "what is learnt of NCCL", CORRECTED: "a corrected engine"}


def models(rows: Sequence[SimulatedRow]) -> str:
    """Return in words which models the times of some rows come from."""
    return " and ".join(dict.fromkeys(MODELS.get(row.engine, f"engine {row.engine}") for row in rows))


def ground(result: SimulatedCalls) -> list[tuple[str, str]]:
    """Return for each algorithm where its times come from, and what of the question nothing was learnt of."""
    lines = []
    rows = result.answered
    for name in dict.fromkeys(row.algorithm for row in rows):
        mine = [row for row in rows if row.algorithm == name]
        asked = ASKED if mine[0].time_us != mine[0].time_us_p50 else ""
        if "ranks" in mine[0].outside:
            lines.append((name, "one rank alone has nobody to send to"))
        elif "beside" in mine[0].outside:
            lines.append((name, "an engine's time, without interval: nothing was measured beside another job"))
        elif mine[0].time_us_p05 is None:
            lines.append((name, "an engine's time, without interval: nothing was measured on such fabrics"))
        elif mine[0].engine == PACKETS and "fabric" in mine[0].outside:
            lines.append(
                (name, "the packet engine's median over draws of losses, and the interval of these draws alone")
            )
        elif LEARNT in mine[0].witnesses:
            lines.append((name, f"{asked}learnt from {_tables(mine[0].calibration)}{_beyond(mine)}"))
        else:
            costs = _costs(mine[0], result.transport)
            told = f"{asked}an engine's time with {costs}, corrected by what engines were off by on measured GPUs"
            lines.append((name, f"{told}; no table has this program"))
    return lines


def _tables(calibration: str) -> str:
    return "open tables of NCCL" if calibration == PRIOR else f"calibration {calibration} and open tables of NCCL"


def _costs(row: SimulatedRow, transport: UsualTransport) -> str:
    """Return whose costs of messages an engine counted."""
    given = "" if row.calibration == PRIOR else f"the costs of calibration {row.calibration}"
    if row.own_software:
        return "the library's own costs of messages" + (f" and {given}" if given else "")
    times = f"{transport.hop_us:g} us a hop, {transport.message_us:g} us a message"
    numbers = f"{times}, {transport.share:.0%} of the NICs' rate"
    return given or f"the usual costs of {transport.name} between nodes ({numbers})"


def _beyond(rows: Sequence[SimulatedRow]) -> str:
    """Return what is extrapolated, with the sizes where it is only some."""
    told = []
    for word in dict.fromkeys(word for row in rows for word in row.outside):
        sizes = [format_size(row.size_bytes) for row in rows if word in row.outside]
        where = "" if len(sizes) == len(rows) else f" ({', '.join(sizes)})"
        told.append(OUTSIDE.get(word, word) + where)
    return f"; extrapolated beyond them in {', '.join(told)}" if told else ""


def write(out: Console, result: SimulatedCalls) -> None:
    """Write where times come from, and the models that disagree."""
    layout.heading(out, "Ground")
    for name, line in ground(result):
        layout.line(out, f"{name}:")
        layout.line(out, line, indent=4)
    if result.disagreements:
        layout.heading(out, "Models disagree", "by more than twice; the first of them is the answer")
        for each in result.disagreements:
            layout.line(out, f"{each.algorithm}:")
            layout.line(out, disagreement(each), style="yellow", indent=4)


def disagreement(each: Disagreement) -> str:
    """Return in words how far models are apart."""
    models = ", ".join(f"{model} {time_us:,.4g} us" for model, time_us in each.witnesses.items())
    sizes = f"{each.sizes} of {each.of} sizes; most at {format_size(each.size_bytes)}"
    return f"{sizes}, {each.ratio:.1f}x: {models}"
