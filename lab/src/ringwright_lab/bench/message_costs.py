"""The message costs of this machine, as a calibration that ``ringwright simulate --calibration`` takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringwright.costs.calibration import Calibration, LinkClassCosts, save
from ringwright.ground.errors import UsageError
from ringwright_lab.bench import probe


def calibration_of(result: Mapping[str, Any], path: Path) -> Calibration:
    """Write the probe of a benchmark's first backend as a calibration of ``switch:n``, and return it.

    ``error`` is how far the simulator was off with it, over this benchmark's own rows of that backend.
    """
    rows = [row for row in result["rows"] if row["predicted_us"]]
    if not rows or not result["probe"] or result["lab"]:
        raise UsageError(
            "no rates were probed, so there is nothing to write down", remedy="two ranks or more, without --lab"
        )
    first, wire, beside = (rows[0][key] for key in ("backend", "wire", "beside"))
    starters = [each["backend"] for each in result["probe"] if each["wire"] == wire]
    starter = beside if beside in starters else starters[0]
    times_s = {
        (each["kind"], each["size_bytes"]): each["time_us"] / 1e6
        for each in result["probe"]
        if (each["backend"], each["wire"]) == (starter, wire)
    }
    mine = [row for row in rows if row["backend"] == first]
    p, sizes = result["ranks"], tuple(sorted({row["size_bytes"] for row in mine}))
    probed = probe.fit(p, times_s, sizes[len(sizes) // 2] / p)
    errors = sorted(max(row["predicted_us"] / row["time_us"], row["time_us"] / row["predicted_us"]) - 1 for row in mine)
    link = LinkClassCosts(probed.latency_s, probed.message_s, probed.shared_rate / p)
    made = Calibration(
        path.stem,
        f"switch:{p}",
        "",
        link,
        link,
        f"ringwright bench, messages over {wire}, {p} ranks on this machine",
        time.strftime("%Y-%m-%d"),
        wire,
        (result["collective"],),
        sizes,
        errors[len(errors) // 2],
        errors[min(int(len(errors) * 0.9), len(errors) - 1)],
    )
    save(made, path)
    return made
