"""The hot loops: compiled where a build is at hand, else their Python twin, with the same results to the bit.

``NATIVE`` says which scanner serves; ``engine`` is the engines' module, ``packets`` that of the packet loop, ``plain`` the one of
pickled plain data and ``expand`` that of the greedy matching of chunks to arcs, or None (their twins live with them);
``events`` reads a line of XLA's profiler. Setting
``RINGWRIGHT_PURE_PYTHON`` to anything but the empty string chooses the twins.

In: arrays and bytes. Out: arrays. Start reading: `twin`, the scanner in Python; ``engine_events.hpp``, the event engine.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ringwright.native import twin
from ringwright.native.twin_events import events

if TYPE_CHECKING:
    from typing import Any

    from ringwright.native.twin import Joiner, Scanner

    NATIVE: bool
    engine: Any
    expand: Any
    packets: Any
    plain: Any
else:
    Joiner, Scanner, NATIVE = twin.Joiner, twin.Scanner, False
    engine = expand = packets = plain = None
    if not os.environ.get("RINGWRIGHT_PURE_PYTHON"):
        with contextlib.suppress(ImportError):
            from ringwright.native._scan import Joiner, Scanner

            NATIVE = True
        with contextlib.suppress(ImportError):
            from ringwright.native import _engine as engine
        with contextlib.suppress(ImportError):
            from ringwright.native import _packets as packets
        with contextlib.suppress(ImportError):
            from ringwright.native import _plain as plain
        with contextlib.suppress(ImportError):
            from ringwright.native import _expand as expand
        with contextlib.suppress(ImportError):
            from ringwright.native._events import events

__all__ = ["NATIVE", "Joiner", "Scanner", "engine", "events", "expand", "packets", "plain"]
