"""A job among many, as typed structures."""

from __future__ import annotations

import msgspec


class FleetRow(msgspec.Struct, kw_only=True):
    """What one recording says, None where it does not.

    ``share`` is the bus bandwidth of ``op``, the operation that takes most of the time, over what the links of the GPU that the
    recording names can carry. ``lost_by`` says how ``lost_ranks`` was measured: exposed or waiting. ``late_ranks`` is empty where
    nobody is late; ``late_us`` is the waiting that they cause, of all ranks over the recording. ``error`` says why the recording
    could not be read.
    """

    ranks: int | None = None
    ranks_expected: int | None = None
    step_us: float | None = None
    steps: int = 0
    op: str | None = None
    busbw_gbs: float | None = None
    share: float | None = None
    lost_ranks: float | None = None
    lost_by: str = ""
    late_ranks: list[int] | None = None
    late_us: float | None = None
    kind: str = ""
    sentence: str = ""
    error: str = ""


class FleetRecord(msgspec.Struct):
    """A row with what is kept beside it: what comparisons ask, packed; the job's own name and its end, where those are told."""

    row: FleetRow
    compared: bytes = b""
    job: str = ""
    ended_unix_s: float | None = None


class FleetChange(msgspec.Struct):
    """What changed, as ``diff`` judges: its kind and sentence; how much longer a step takes where that is more than noise."""

    kind: str
    sentence: str
    step_ratio: float | None = None
