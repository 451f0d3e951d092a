"""What changed between two recordings, for whoever asks in Python: as the verb ``diff`` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ringwright.analysis.compared.diff import diff
from ringwright.analysis.notebook_tables import of_difference
from ringwright.analysis.slow.disturbance import can_be_told, disturbance
from ringwright.analysis.summary import summarise
from ringwright.ground.notebook import shown
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    from ringwright.analysis.compared.diff_document import RunDifference
    from ringwright.analysis.document import Summary

Recorded = Trace | Mapping[str, object] | str | Path


def difference(before: Recorded, after: Recorded) -> RunDifference:
    """Say what changed from one recording to another: times, waiting, calls and bytes, and what disturbed the later one.

    Parameters
    ----------
    before, after
        Traces, paths of recordings, or what ``summary`` said of them.

    Returns
    -------
    dict
        Plain JSON values, schema ``ringwright.diff/1``: ``answer``, ``times`` (steps, waiting, exposed communication),
        ``bandwidth`` (a row per operation and size, with ``ratio`` = after / before and whether it ``changed`` by more than it
        varies by itself), ``changes`` of calls and bytes. ``disturbance`` says what slowed the later run where that can be told
        of two Traces, else it is None.

    Raises
    ------
    InputError
        A path holds no recording.

    Examples
    --------
    >>> import ringwright
    >>> trace = ringwright.read(ringwright.sample())
    >>> ringwright.diff(trace, trace)["changed_share"]
    0.0
    """
    first, second = _read(before), _read(after)
    result = diff(_said(first), _said(second))
    both = isinstance(first, Trace) and isinstance(second, Trace) and can_be_told(second, first)
    result["disturbance"] = disturbance(cast(Trace, second), cast(Trace, first)) if both else None
    return shown(result, of_difference)


def _read(recording: Recorded) -> Trace | Mapping[str, object]:
    if isinstance(recording, Trace | Mapping):
        return recording
    from ringwright.formats.sources import read

    return read(recording)


def _said(recording: Trace | Mapping[str, object]) -> Summary:
    return summarise(recording) if isinstance(recording, Trace) else cast("Summary", recording)
