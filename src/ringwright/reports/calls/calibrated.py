"""A calibration as text: the numbers, the error band, and every size beside its closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from ringwright.ground.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from ringwright.calls.calibrate import Size
    from ringwright.costs.calibration import Calibration
    from ringwright.costs.probable_time import Probable


POOR = 0.25  # error from which on it is said


def _apart(sizes: Sequence[Size]) -> str:
    """Return by how much the sizes of each table are off, the worst first, at most five."""
    off: dict[str, list[float]] = {}
    for size in sizes:
        off.setdefault(size.table, []).append(abs(math.log(size.simulated_s / size.measured_s)))
    worst = sorted(off.items(), key=lambda each: -sum(each[1]) / len(each[1]))
    return ", ".join(f"{table} {math.exp(sum(logs) / len(logs)) - 1:.0%}" for table, logs in worst[:5])


def _answer(said: Probable | None) -> str:
    """Return the cells of an answer and its interval."""
    if said is None:
        return f"{'-':>10} {'-':>20}"
    interval = "none" if said.p05_us is None else f"{said.p05_us:,.1f} to {said.p95_us:,.1f}"
    return f"{said.p50_us:10.1f} {interval:>20}"


def write(calibration: Calibration, sizes: Sequence[Size], out: TextIO, written: Path | None = None) -> None:
    """Write the numbers, then the table."""
    print(calibration.provenance, file=out)
    print(
        f"fabric {calibration.fabric}; 90 % of the sizes of 64 KiB and more are within {calibration.error_p90:.1%}; "
        "algorithm, protocol, channels and chunks come from the release, they are not fitted",
        file=out,
    )
    print(f"\n{'link':<8} {'hop us':>9} {'message us':>11} {'GB/s':>9}", file=out)
    for name, link in (("inside", calibration.inside), ("outside", calibration.outside)):
        if link is not None:
            print(
                f"{name:<8} {link.latency_s * 1e6:9.2f} {link.message_s * 1e6:11.2f} {link.rate_bytes_per_s / 1e9:9.1f}",
                file=out,
            )
    print("inside: of a GPU, one way; outside: of all NICs of a node, one way", file=out)
    if calibration.error > POOR:
        print(f"\npoor fit, one set of link numbers for all of this: {_apart(sizes)}", file=out)
        print("fit fewer tables at a time; the most probable time of simulate learns from each table itself", file=out)
    answer = f"{'time us':>10} {'90 % us':>20}"
    print(f"\n{'operation':<15} {'size':>9} {'measured us':>12} {answer} {'closed form us':>15} {'ratio':>6}", file=out)
    for size in sizes:
        ratio = size.simulated_s / size.measured_s
        print(
            f"{size.op:<15} {format_size(size.size_bytes):>9} {size.measured_s * 1e6:12.1f} "
            f"{_answer(size.said)} {size.simulated_s * 1e6:15.1f} {ratio:6.2f}",
            file=out,
        )
    print("time us: as simulate answers with this calibration; ratio: closed form over measured", file=out)
    if written:
        print(f"\nwrote {written}; use it by --calibration {written}", file=out)
