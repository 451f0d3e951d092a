"""The hot loops: compiled where a build is at hand, else their Python twin, with the same results to the bit.

``NATIVE`` says which scanner serves; ``engine`` is the engines' module, or None (their twins live with them). Setting
``RINGWRIGHT_PURE_PYTHON`` to anything but the empty string chooses the twins.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ringwright.native import twin

if TYPE_CHECKING:
    from typing import Any

    from ringwright.native.twin import Joiner, Scanner

    NATIVE: bool
    engine: Any
else:
    Joiner, Scanner, NATIVE, engine = twin.Joiner, twin.Scanner, False, None
    if not os.environ.get("RINGWRIGHT_PURE_PYTHON"):
        with contextlib.suppress(ImportError):
            from ringwright.native._scan import Joiner, Scanner

            NATIVE = True
        with contextlib.suppress(ImportError):
            from ringwright.native import _engine as engine

__all__ = ["NATIVE", "Joiner", "Scanner", "engine"]
