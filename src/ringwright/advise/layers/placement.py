"""Which rank runs where: the axes of a job over the levels of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.advise.layers.operations import on_known_machine
from ringwright.advise.machines import placed_axes
from ringwright.advise.settings import PLACED, Setting
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

MOST = 8
RISK = "checkpoints and data loaders that go by rank move with it"


def placed_settings(situation: Situation) -> list[Setting]:
    """Return the placements that cost least by rings; UsageError where there is one only, or the machine has no levels."""
    on_known_machine(situation)
    if situation.topology is None or len([size for _, size in situation.workload.mesh.axes if size > 1]) < 2:
        raise UsageError("ranks along one axis are alike wherever they lie", remedy="a job of two axes or more")
    listed = [
        (said, each) for said, each in placed_axes(situation.topology, situation.workload) if not each.is_as_numbered
    ]
    return [
        Setting(
            "placement",
            PLACED,
            said,
            f"ranks laid out anew: {said}",
            "the order of hosts and devices in the launcher's host or rank file",
            RISK,
        )
        for said, _ in listed[:MOST]
    ]
