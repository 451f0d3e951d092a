"""Which loops run: the compiled ones where a build is at hand, else their Python twins, with equal results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines.events import simulate_events

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.flat import Flat
    from ringwright.engines.machine import Machine


def events(flat: Flat, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of every message and join (see events.simulate_events)."""
    return simulate_events(flat, machine)
