"""The slots of one job in a switch: each sums one frame of every worker, in two versions, and keeps the sum until it is reused.

After algorithm 3 of Sapio et al. (NSDI 2021). Theirs needs links that keep the order of frames; here a slot also remembers each
worker's newest chunk, so that an old copy that comes late is known for what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ringwright.execute.switched.frames import SLOT_MASK, VERSION_BIT, FrameShape, address, headers


@dataclass
class PoolOutcome:
    """What a batch of frames led to: uint8 frames, one a row, and pairs of indices (version, slot)."""

    complete: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # every worker has been heard
    again: dict[int, list[tuple[np.ndarray, np.ndarray]]] = field(
        default_factory=dict
    )  # by worker: its result was lost
    waiting: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by worker: a peer is still missing
    upward: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # the sum is not back from above


class SwitchSlots:
    """``slots`` of one job for ``workers``; ``is_root``: what is complete here is the result, else it is asked of above."""

    def __init__(self, slots: int, workers: int, shape: FrameShape, job: int, *, is_root: bool = True) -> None:
        self.slots, self.workers, self.shape, self.job, self.is_root = slots, workers, shape, job, is_root
        self.full = (1 << workers) - 1
        native = np.dtype(shape.element)
        self.sums = np.zeros((2, slots, shape.elements), native)
        self.exponents = np.zeros((2, slots), np.int16)
        self.seen = np.zeros((2, slots), np.uint32)  # bitmap of workers
        self.held = np.zeros((2, slots), bool)  # the final sum stands here
        self.tsi = np.zeros((2, slots), np.uint32)
        self.newest = np.zeros((slots, workers), np.uint32)
        self.known = np.zeros((slots, workers), bool)
        self.counts = dict.fromkeys(("added", "repeated", "stale", "mismatched", "malformed"), 0)

    @property
    def size_bytes(self) -> int:
        """Memory of the slots."""
        kept = (self.sums, self.exponents, self.seen, self.held, self.tsi, self.newest, self.known)
        return sum(each.nbytes for each in kept)

    def arrive(self, worker: int, frames: np.ndarray, outcome: PoolOutcome) -> None:
        """Take frames of one worker (uint8, one a row), in the order in which they came."""
        read = headers(frames)
        slot, version = read["pool"] & SLOT_MASK, read["pool"] >> 15
        good = (slot < self.slots) & (frames[:, 0] == self.shape.first_byte)
        if not good.all():
            self.counts["malformed"] += int((~good).sum())
            frames, read, slot, version = frames[good], read[good], slot[good], version[good]
        slot, version, tsi = slot.astype(np.intp), version.astype(np.intp), read["tsi"].astype(np.uint32)
        while len(slot):
            if len(set(slot.tolist())) == len(slot):
                self._once(worker, slot, version, tsi, frames, outcome)
                return
            first = np.unique(slot, return_index=True)[1]
            first.sort()
            self._once(worker, slot[first], version[first], tsi[first], frames[first], outcome)
            rest = np.ones(len(slot), bool)
            rest[first] = False
            slot, version, tsi, frames = slot[rest], version[rest], tsi[rest], frames[rest]

    def _once(
        self,
        worker: int,
        slot: np.ndarray,
        version: np.ndarray,
        tsi: np.ndarray,
        frames: np.ndarray,
        outcome: PoolOutcome,
    ) -> None:
        """Take frames of different slots."""
        known = self.known[slot, worker]
        age = (tsi - self.newest[slot, worker]).view(np.int32)  # numbers may wrap around
        seen, own = self.seen[version, slot], self.tsi[version, slot]
        open_, fresh = (seen != 0) & (seen != self.full), ~known | (age > 0)
        mismatched = fresh & open_ & (tsi != own)
        again = known & (age == 0) & (tsi == own)
        self.counts["stale"] += int((~fresh & ~again).sum())
        self.counts["mismatched"] += int(mismatched.sum())
        if again.any():
            self._repeated(worker, slot[again], version[again], outcome)
        take = fresh & ~mismatched
        if take.any():
            begins = take & ~open_
            self._add(slot, version, frames, begins, take & open_)
            self._note(worker, slot[take], version[take], tsi[take], begins[take], outcome)

    def _add(
        self, slot: np.ndarray, version: np.ndarray, frames: np.ndarray, begins: np.ndarray, adds: np.ndarray
    ) -> None:
        values, exponents = self.shape.values(frames), self.shape.exponents(frames)
        if begins.any():
            at = version[begins], slot[begins]
            self.sums[at] = values[begins]
            self.exponents[at] = exponents[begins]
        if adds.any():
            at = version[adds], slot[adds]
            self.sums[at] += values[adds].astype(self.sums.dtype)
            self.exponents[at] = np.maximum(self.exponents[at], exponents[adds])

    def _note(
        self,
        worker: int,
        slot: np.ndarray,
        version: np.ndarray,
        tsi: np.ndarray,
        begins: np.ndarray,
        outcome: PoolOutcome,
    ) -> None:
        self.counts["added"] += len(slot)
        self.newest[slot, worker], self.known[slot, worker] = tsi, True
        self.tsi[version, slot] = tsi
        self.held[version, slot] = False
        seen = np.where(begins, 0, self.seen[version, slot]).astype(np.uint32) | np.uint32(1 << worker)
        self.seen[version, slot] = seen
        done = seen == self.full
        if done.any():
            at = version[done], slot[done]
            self.held[at] = self.is_root
            (outcome.complete if self.is_root else outcome.upward).append(at)

    def _repeated(self, worker: int, slot: np.ndarray, version: np.ndarray, outcome: PoolOutcome) -> None:
        """Answer copies: with the result, with who is missing, or by asking above once more."""
        self.counts["repeated"] += len(slot)
        held, full = self.held[version, slot], self.seen[version, slot] == self.full
        if held.any():
            outcome.again.setdefault(worker, []).append((version[held], slot[held]))
        lost = full & ~held
        if lost.any():
            outcome.upward.append((version[lost], slot[lost]))
        missing = ~full
        if missing.any():
            pairs = zip(version[missing].tolist(), slot[missing].tolist(), strict=True)
            outcome.waiting.setdefault(worker, []).extend(pairs)

    def from_above(self, frames: np.ndarray, outcome: PoolOutcome) -> None:
        """Take results (uint8 frames, one a row) of the switch above; a second copy of one changes nothing."""
        read = headers(frames)
        slot, version = (read["pool"] & SLOT_MASK).astype(np.intp), (read["pool"] >> 15).astype(np.intp)
        good = (slot < self.slots) & (frames[:, 0] == self.shape.first_byte)
        self.counts["malformed"] += int((~good).sum())
        slot = np.where(good, slot, 0)
        good &= (self.seen[version, slot] == self.full) & ~self.held[version, slot]
        good &= self.tsi[version, slot] == read["tsi"]
        # One copy of each: the first.
        good[np.setdiff1d(np.arange(len(slot)), np.unique(slot + self.slots * version, return_index=True)[1])] = False
        if good.any():
            at = version[good], slot[good]
            self.sums[at] = self.shape.values(frames)[good]
            self.exponents[at] = self.shape.exponents(frames)[good]
            self.held[at] = True
            outcome.complete.append(at)

    def frames(self, pairs: list[tuple[np.ndarray, np.ndarray]], token: np.ndarray | None) -> np.ndarray:
        """Return frames with what stands in these (version, slot). uint8 of shape (frames, width)."""
        version, slot = (np.concatenate(each) for each in zip(*pairs, strict=True))
        frames = self.shape.blank(len(slot), self.job)
        address(frames, self.tsi[version, slot], slot, version)
        self.shape.values(frames)[:] = self.sums[version, slot]
        self.shape.exponents(frames)[:] = self.exponents[version, slot]
        if token is not None:
            frames[:, -len(token) :] = token
        return frames

    def missing(self, version: int, slot: int) -> tuple[int, int, int]:
        """Return (chunk, pool index, bitmap of the workers that have been heard) of a slot."""
        return int(self.tsi[version, slot]), slot | version * VERSION_BIT, int(self.seen[version, slot])
