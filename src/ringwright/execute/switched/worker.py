"""A worker of a switch that adds: which frames it sends when, and what it makes of results. It knows no clock and no socket.

The result of a slot is the only acknowledgement; it lets the next chunk into that slot (algorithm 4, Sapio et al. 2021).
Chunk c goes through slot c mod s; the version of a slot flips each time, also from one vector to the next. A frame that has no
result after a while is sent again as it was: after max(10 ms, srtt + 4 rttvar), twice as long each further time for that slot,
for a timer below the queueing time would feed its own queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ringwright.execute.switched.frames import (
    SLOT_MASK,
    VERSION_BIT,
    ControlFrame,
    FrameShape,
    address,
    headers,
    is_sealed,
    token,
)
from ringwright.ground.errors import RanksFailedError, UsageError
from ringwright.model.codecs import block_exponent, fixed_point
from ringwright.model.codecs.block_exponent import NO_EXPONENT, UNKNOWN

LEAST_RTO_S, FIRST_RTO_S, MOST_RTO_S = 0.010, 0.100, 1.0
EXPONENTS = ("block-exponent", "int8")  # codecs whose frames have one
CODECS = (*EXPONENTS, "fixed-point", "none")  # none: whole numbers go as they are


@dataclass(frozen=True)
class Membership:
    """What a worker and its switch must agree on. ``worker``: its number at its switch; ``workers``: of the whole job.

    ``session``: one number for all workers of a run; ``key``: shared with the switch, or empty; ``scale``: of fixed point.
    """

    worker: int
    workers: int
    job: int = 0
    slots: int = 64
    codec: str = "block-exponent"
    payload_bytes: int = 1024
    session: int = 0
    key: bytes = b""
    scale: float = fixed_point.USUAL_SCALE

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.codec not in CODECS:
            raise UsageError(f"no codec '{self.codec}' for a switch", remedy=f"one of: {', '.join(CODECS)}")
        if not 0 <= self.job < 256 or not 1 <= self.slots <= SLOT_MASK + 1:
            raise UsageError(
                f"job {self.job} with {self.slots} slots does not fit the header", remedy="job=0, slots=64"
            )
        block_exponent.require_room(self.workers, self.element)

    @property
    def element(self) -> str:
        """The integers on the wire."""
        return "int8" if self.codec == "int8" else "int32"

    @property
    def shape(self) -> FrameShape:
        """The frames."""
        return FrameShape(self.element, self.payload_bytes, bool(self.key))


class Worker:
    """One worker: ``begin`` a vector, hand out ``frames`` that are due, take what has ``arrived``, until ``done``."""

    def __init__(self, member: Membership) -> None:
        self.member, self.shape = member, member.shape
        slots = member.slots
        self._mine = token(member.key, member.session, member.job, member.worker) if member.key else None
        self._theirs = token(member.key, member.session, member.job, -1) if member.key else None
        self._frames = self.shape.blank(slots, member.job)  # what each slot sent last
        if self._mine is not None:
            self._frames[:, -len(self._mine) :] = self._mine
        self._uses = np.zeros(slots, np.int64)  # of each slot so far, over all vectors: its version
        self._tsi = np.zeros(slots, np.uint32)
        self._chunk = np.full(slots, -1)  # that the slot carries; -1: exponents alone
        self._waits = np.zeros(slots, bool)
        self._fresh = np.zeros(slots, bool)  # not sent yet
        self._sent_s, self._first_s = np.zeros(slots), np.zeros(slots)  # the last copy, and the first
        self._tries = np.zeros(slots, np.int64)
        self._base = 0  # running number of the vector's first chunk
        self.srtt_s = self.rttvar_s = self._floor_s = 0.0
        self.moved_s = 0.0  # when a slot last came back
        self.heard_s = -1.0  # when the switch last said anything
        self.missing: ControlFrame | None = None  # what the switch said last of a peer that has not been heard
        self.counts = dict.fromkeys(("sent", "again", "results", "unasked", "strangers"), 0)
        self._values: np.ndarray = np.zeros((0, self.shape.elements), np.float32)
        self._out: np.ndarray = self._values
        self._agreed = np.zeros(0, np.int16)
        self._own = np.zeros(0, np.int16)
        self._left = 0
        self._size = 0

    @property
    def _agrees(self) -> bool:
        """Whether workers agree on exponents first."""
        return self.member.codec in EXPONENTS

    @property
    def done(self) -> bool:
        """Whether all of the vector is back."""
        return not self._left

    @property
    def outstanding(self) -> int:
        """Frames that have no result yet."""
        return int(self._waits.sum())

    def begin(self, vector: np.ndarray, now_s: float) -> None:
        """Start with a vector: float32, or with codec ``none`` int32; of shape (elements,)."""
        wanted = np.int32 if self.member.codec == "none" else np.float32
        if vector.dtype != wanted or vector.ndim != 1:
            raise UsageError(
                f"codec {self.member.codec} takes a vector of {np.dtype(wanted)}, not {vector.ndim} axes of {vector.dtype}",
                remedy="codec=none for int32, block-exponent, int8 or fixed-point for float32",
            )
        chunks = -(-len(vector) // self.shape.elements)
        if self.member.codec == "fixed-point":
            vector = fixed_point.to_whole(vector, self.member.workers, self.member.scale)
        self._values = np.zeros((chunks, self.shape.elements), vector.dtype)
        self._values.reshape(-1)[: len(vector)] = vector
        self._out = np.zeros_like(self._values)
        self._size, self._left, self.moved_s, self.missing = len(vector), chunks, now_s, None
        starts = np.arange(min(chunks, self.member.slots))
        if self._agrees:
            self._own, self._agreed = block_exponent.exponents(self._values), np.full(chunks, NO_EXPONENT, np.int16)
            if (self._own == UNKNOWN).any():
                raise UsageError(
                    "a switch cannot add infinities and NaN",
                    where="the values of this rank",
                    remedy="clip or mask them before",
                )
            self._fill(starts, starts - self.member.slots)
        else:
            self._fill(starts, starts)

    def _fill(self, slots: np.ndarray, chunks: np.ndarray) -> None:
        """Let chunks into slots; a negative one is the round of exponents before the first."""
        frames = self._frames[slots]
        values = self.shape.values(frames)
        if self._agrees:
            real = _those(chunks >= 0)
            if not isinstance(real, slice):
                values[:] = 0
            sent = chunks[real]
            values[real] = self._whole(sent)
            after = chunks + self.member.slots
            comes = _those(after < len(self._values))
            self.shape.exponents(frames)[comes] = self._own[after[comes]]
        else:
            values[:] = self._values[chunks]
        self._tsi[slots] = (self._base + chunks + (self.member.slots if self._agrees else 0)).astype(np.uint32)
        address(frames, self._tsi[slots], slots, self._uses[slots] & 1)
        self._frames[slots] = frames
        self._chunk[slots], self._waits[slots], self._fresh[slots], self._tries[slots] = chunks, True, True, 0

    @property
    def rto_s(self) -> float:
        """How long a frame waits for its result before it is sent again."""
        known_s = max(LEAST_RTO_S, self.srtt_s + 4 * self.rttvar_s) if self.srtt_s else FIRST_RTO_S
        return max(known_s, self._floor_s)

    def _due_s(self) -> np.ndarray:
        return self._sent_s + np.minimum(self.rto_s * np.exp2(self._tries), max(MOST_RTO_S, self.rto_s))

    def wait_s(self, now_s: float) -> float:
        """Return how long nothing is due."""
        if self._fresh.any():
            return 0.0
        if not self._waits.any():
            return MOST_RTO_S
        return max(0.0, float(self._due_s()[self._waits].min()) - now_s)

    def frames(self, now_s: float) -> np.ndarray:
        """Return the frames to send now: new ones, and those whose time is up. uint8 of shape (frames, width)."""
        late = self._waits & ~self._fresh & (self._due_s() <= now_s)
        self._tries[late] += 1
        self.counts["again"] += int(late.sum())
        due = np.flatnonzero(late | self._fresh)
        # Oldest chunk first, so that the switch meets slots in the order in which it will complete them.
        due = due[np.argsort(self._chunk[due], kind="stable")]
        self._first_s[self._fresh] = now_s
        self._fresh[due] = False
        self._sent_s[due] = now_s
        self.counts["sent"] += len(due)
        return self._frames[due]

    def arrived(self, frames: np.ndarray, now_s: float) -> None:
        """Take data frames from the switch (uint8, one a row)."""
        if frames.shape[1] != self.shape.width:
            self.counts["strangers"] += len(frames)
            return
        if self._theirs is not None:
            sealed = is_sealed(frames, self._theirs)
            self.counts["strangers"] += int((~sealed).sum())
            frames = frames[sealed]
        read = headers(frames)
        slot = (read["pool"] & SLOT_MASK).astype(np.intp)
        good = (slot < self.member.slots) & (frames[:, 0] == self._frames[0, 0]) & (read["job"] == self.member.job)
        slot = np.where(good, slot, 0)
        good &= self._waits[slot] & (self._tsi[slot] == read["tsi"])
        good &= (self._uses[slot] & 1) * VERSION_BIT == (read["pool"] & VERSION_BIT)
        chosen = np.flatnonzero(good)
        if len(set(slot[chosen].tolist())) < len(chosen):  # copies: the first of each
            chosen = chosen[np.sort(np.unique(slot[chosen], return_index=True)[1])]
        self.heard_s = now_s
        self.counts["unasked"] += len(frames) - len(chosen)
        if len(chosen):
            self._results(slot[chosen], frames[chosen], now_s)

    def _results(self, slot: np.ndarray, frames: np.ndarray, now_s: float) -> None:
        self.counts["results"] += len(slot)
        self.moved_s, self.missing = now_s, None
        once = self._tries[slot] == 0
        if once.any():
            self._measured(float((now_s - self._sent_s[slot[once]]).max()))
        else:  # these may be answers to any of the copies: until one tells, wait longer each time (after Karn and Partridge)
            since_s = float((now_s - self._first_s[slot]).max())
            self._floor_s = min(since_s, 2 * self.rto_s, MOST_RTO_S)
        chunk = self._chunk[slot]
        values = self.shape.values(frames)
        after = chunk + self.member.slots
        follows = after < len(self._values)
        comes = _those(follows)
        if self._agrees:
            self._agreed[after[comes]] = self.shape.exponents(frames)[comes]
            real = _those(chunk >= 0)
            back = chunk[real]
            self._out[back] = block_exponent.from_whole(values[real], self._factors(back))
            self._left -= len(back)
        else:
            self._out[chunk] = values
            self._left -= len(chunk)
        self._uses[slot] += 1
        self._waits[slot[~follows]] = False
        if follows.any():
            self._fill(slot[comes], after[comes])
        if not self._left:
            self._base += len(self._values) + (self.member.slots if self._agrees else 0)

    def _measured(self, rtt_s: float) -> None:
        """Follow the round trip as TCP does (RFC 6298)."""
        self._floor_s = 0.0
        if not self.srtt_s:
            self.srtt_s, self.rttvar_s = rtt_s, rtt_s / 2
            return
        self.rttvar_s += (abs(self.srtt_s - rtt_s) - self.rttvar_s) / 4
        self.srtt_s += (rtt_s - self.srtt_s) / 8

    def told(self, said: ControlFrame, now_s: float) -> None:
        """Take word of the switch that a peer's frame is missing."""
        self.heard_s = now_s
        if (said.pool & SLOT_MASK) < self.member.slots and said.tsi == int(self._tsi[said.pool & SLOT_MASK]):
            self.missing = said

    def _factors(self, chunks: np.ndarray) -> np.ndarray:
        """Return by what chunks are multiplied, once their exponents are agreed. float64 of shape (chunks,)."""
        return block_exponent.factors(self._agreed[chunks], self.member.workers, self.member.element)

    def _whole(self, chunks: np.ndarray) -> np.ndarray:
        """Return chunks as they go: of the wire's integers and of shape (chunks, elements)."""
        f = self._factors(chunks)
        return block_exponent.to_whole(self._values[chunks], f, self.member.workers, self.member.element)

    def result(self) -> np.ndarray:
        """Return the sum: float32, or with codec ``none`` int32; of shape (elements,)."""
        return self._real(self._out)

    def sent(self) -> np.ndarray:
        """Return what the codec kept of this worker's vector, once it is ``done``: as ``result`` in dtype and shape."""
        if not self._agrees:
            return self._real(self._values)
        every = np.arange(len(self._values))
        return self._real(block_exponent.from_whole(self._whole(every), self._factors(every)))

    def _real(self, chunks: np.ndarray) -> np.ndarray:
        flat = chunks.reshape(-1)[: self._size]
        if self.member.codec == "fixed-point":
            flat = fixed_point.from_whole(flat, self.member.scale)
        return flat if self.member.codec == "none" else flat.astype(np.float32, copy=False)

    def stuck(self, now_s: float, *, at: str = "") -> RanksFailedError:
        """Return the error of a worker that has waited long enough: it names who has not been heard."""
        waited_s = now_s - self.moved_s
        remedy = "look at what ended that worker; a new run needs a session of its own"
        if self.missing is None or self.heard_s < self.moved_s:
            what, remedy = (
                f"the switch has not answered for {waited_s:.1f} s",
                f"is it running at {at or 'its address'}?",
            )
            return RanksFailedError(what, where=self._where(), remedy=remedy)
        said = self.missing
        silent = ", ".join(str(each) for each in range(said.workers) if not said.bitmap >> each & 1)
        who = f"worker {silent}" if not said.what else f"branch {silent} of the switch {said.what} above"
        return RanksFailedError(
            f"{who} has sent nothing for {waited_s:.1f} s; worker {self.member.worker} waits",
            where=self._where(),
            remedy=remedy,
        )

    def _where(self) -> str:
        total = len(self._values)
        return f"job {self.member.job}, {total - self._left} of {total} chunks are back"


def _those(mask: np.ndarray) -> slice | np.ndarray:
    """Return what picks the rows of a mask; all of them without a copy. bool of shape (rows,), or a slice."""
    return slice(None) if mask.all() else mask
