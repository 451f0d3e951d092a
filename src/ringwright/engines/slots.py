"""Places (rank, slot) up to symmetry: which one stands for all its images, and whether blocks respect that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.mesh import Mesh, View
    from ringwright.program import Affine, Layout

UNEVEN = "chunks differ in size"


def require_equal_bytes(mesh: Mesh, layout: Layout) -> None:
    """Raise DeclinedError where a slot and its image differ in size."""
    import numpy as np

    if len(layout.chunk_bytes) < 2 or bool((layout.chunk_bytes == layout.chunk_bytes[0]).all()):
        return
    slots = np.arange(layout.slots)
    sizes = layout.bytes_of(slots)
    for number in range(len(mesh.axes)):
        turned = slots
        for digit in mesh.slots:
            if digit.axis == number:
                at = slots // digit.weight % digit.size
                turned = turned + digit.weight * ((at + digit.turn) % digit.size - at)
        if turned.max(initial=0) >= layout.slots or not np.array_equal(sizes[turned], sizes):
            raise DeclinedError(UNEVEN)


class Starts:
    """The first slots of a family's moves: a row per block, a column per representative."""

    def __init__(self, view: View, index: Affine, rows: tuple[np.ndarray, np.ndarray], at: np.ndarray) -> None:
        import numpy as np

        bases, offsets = rows
        self.digits = view.slot_digits(index)
        self.values: dict[int, np.ndarray] = {}
        self.fixed = np.repeat(bases[:, None], len(at), axis=1)
        for place, (slope, _, modulus, weight) in enumerate(index.digits):
            value = (slope * at[:, place] + offsets[:, place, None]) % modulus
            if place in self.digits:
                self.values[place] = value
            elif weight:
                self.fixed += weight * value

    def absolute(self) -> np.ndarray:
        """Return the slots themselves."""
        total = self.fixed.copy()
        for place, digit in self.digits.items():
            total += digit.weight * self.values[place]
        return total

    def relative(self, turns: np.ndarray) -> np.ndarray:
        """Return the slots with the turns of their ranks taken back."""
        total = self.fixed.copy()
        for place, digit in self.digits.items():
            total += digit.weight * ((self.values[place] - digit.turn * turns[:, digit.axis]) % digit.size)
        return total

    def require_turning(self, mesh: Mesh, span: int) -> None:
        """Raise DeclinedError unless turning the ranks turns exactly these slots, whatever the offsets.

        A digit that a block turns must be one of its slots' own, without carries; any other must be covered whole.
        """
        mine = {(digit.weight, digit.size) for digit in self.digits.values()}
        below = 0  # the most that smaller turning digits add
        for digit in mesh.slots:
            whole = digit.weight * digit.size
            if (digit.weight, digit.size) in mine:
                good = bool((self.fixed % whole + below + span <= digit.weight).all())
                below += digit.weight * (digit.size - 1)
            else:
                good = below == 0 and span % whole == 0 and bool((self.fixed % whole == 0).all())
            if not good:
                raise DeclinedError("a move covers part of what turns with the ranks")
