"""Places (rank, slot) up to symmetry: which one stands for all its images, and whether blocks respect that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.folding.mesh import SymmetryGroup, View
    from ringwright.engines.folding.patterns import IndexPattern
    from ringwright.model.program import Layout

UNEVEN = "chunks differ in size"


def require_equal_bytes(mesh: SymmetryGroup, layout: Layout) -> None:
    """Raise DeclinedError where a slot and its image differ in size."""
    import numpy as np

    if len(layout.chunk_bytes) < 2 or bool((layout.chunk_bytes == layout.chunk_bytes[0]).all()):
        return
    slots = np.arange(layout.slots)
    sizes, homes = layout.bytes_of(slots), slots // max(layout.n_chunks, 1)
    for number in range(len(mesh.axes)):
        turned = slots
        for digit in mesh.slots:
            if digit.axis == number:
                at = slots // digit.weight % digit.size
                step = digit.weight * ((at + digit.turn) % digit.size - at)
                turned = turned + np.where(homes == digit.home, step, 0)
        if turned.max(initial=0) >= layout.slots or not np.array_equal(sizes[turned], sizes):
            raise DeclinedError(UNEVEN)


class Starts:
    """The first slots of a family's moves: a row per block, a column per representative."""

    def __init__(
        self, view: View, index: IndexPattern, home: int, rows: tuple[np.ndarray, np.ndarray], at: np.ndarray
    ) -> None:
        import numpy as np

        bases, offsets = rows
        self.home = home
        self.digits = view.slot_digits(index, home)
        self.values: dict[int, np.ndarray] = {}
        self.fixed = np.repeat(bases[:, None], len(at), axis=1)
        for number, part in enumerate(index.parts):
            value = (part.slope * at[:, part.axis] + offsets[:, number, None]) % part.modulus
            if number in self.digits:
                self.values[number] = value
            elif part.weight:
                self.fixed += part.weight * value

    def absolute(self) -> np.ndarray:
        """Return the slots themselves. int64 of shape (moves,)."""
        total = self.fixed.copy()
        for number, digit in self.digits.items():
            total += digit.weight * self.values[number]
        return total

    def relative(self, turns: np.ndarray) -> np.ndarray:
        """Return the slots with the turns of their ranks taken back. int64 of shape (moves,)."""
        total = self.fixed.copy()
        for number, digit in self.digits.items():
            total += digit.weight * ((self.values[number] - digit.turn * turns[:, digit.axis]) % digit.size)
        return total

    def require_turning(self, mesh: SymmetryGroup, span: int, n_chunks: int) -> None:
        """Raise DeclinedError unless turning the ranks turns exactly these slots, whatever the offsets.

        A digit that a block turns must be one of its slots' own, without carries; any other must be covered whole. Slots
        of different sets turn apart, so no move may reach from one set into the next.
        """
        mine = {(digit.weight, digit.size) for digit in self.digits.values()}
        fixed = self.fixed - self.home * n_chunks
        below = 0  # the most that smaller turning digits add
        good = True
        for digit in mesh.slots:
            if digit.home != self.home:
                continue
            whole = digit.weight * digit.size
            if (digit.weight, digit.size) in mine:
                good &= bool((fixed % whole + below + span <= digit.weight).all())
                below += digit.weight * (digit.size - 1)
            else:
                good &= below == 0 and span % whole == 0 and bool((fixed % whole == 0).all())
        if not good or bool(((fixed < 0) | (fixed + below + span > n_chunks)).any()):
            raise DeclinedError("a move covers part of what turns with the ranks")
