"""The hot loops: compiled where a build is at hand, else their Python twin, with the same results to the bit.

``NATIVE`` says which one serves; setting ``RINGWRIGHT_PURE_PYTHON`` to anything but the empty string chooses the twin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ringwright.native import twin

if TYPE_CHECKING:
    from ringwright.native.twin import Joiner, Scanner

    NATIVE: bool
else:
    Joiner, Scanner, NATIVE = twin.Joiner, twin.Scanner, False
    if not os.environ.get("RINGWRIGHT_PURE_PYTHON"):
        try:
            from ringwright.native._scan import Joiner, Scanner

            NATIVE = True
        except ImportError:
            pass

__all__ = ["NATIVE", "Joiner", "Scanner"]
