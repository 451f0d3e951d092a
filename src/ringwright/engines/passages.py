"""When the messages of a run pass the resources of their routes, for pictures of a run over time.

The event engine's own passages are those that it would follow again; they count only where they begin when the run says. Other
engines know the begin and the end of a message: it is then taken to pass all of its route for as long, evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.arrivals import gated
from ringwright.engines.event_loop import served
from ringwright.engines.machine import FOREVER

if TYPE_CHECKING:
    from ringwright.engines.result import Run
    from ringwright.model.program import Program


@dataclass(frozen=True)
class RunPassages:
    """From when to when each hop of each message passes its resource, on the run's clock.

    ``begin_ps`` and ``stop_ps`` are int64 of shape (hops,), FOREVER for what was not followed, as is ``leave_ps``: when the last
    byte is behind the resource, its latency too. ``share``, float64 of shape (hops,), is the part of the resource that the
    message takes meanwhile: 1 where ``is_exact``, the event engine's own passages.
    """

    begin_ps: np.ndarray
    stop_ps: np.ndarray
    leave_ps: np.ndarray
    share: np.ndarray
    is_exact: bool

    def load(self, resource: np.ndarray, resources: int, time_ps: int, parts: int) -> np.ndarray:
        """Return the share of each of ``parts`` equal parts of a time in which each resource passes bytes.

        ``resource``: of each hop, integers of shape (hops,). float64 of shape (resources, parts).
        """
        went = self.stop_ps < FOREVER
        of, share = resource[went], self.share[went]
        begin, stop = self.begin_ps[went].astype(float), self.stop_ps[went].astype(float)
        width = max(time_ps, 1) / parts
        load = np.zeros((resources, parts))
        for at in range(parts):
            inside = np.minimum(stop, (at + 1) * width) - np.maximum(begin, at * width)
            load[:, at] = np.bincount(of, weights=share * np.maximum(inside, 0.0), minlength=resources) / width
        return load


def passages(program: Program, run: Run, until_ps: int = FOREVER) -> RunPassages:
    """Return the passages of a run that followed its program's messages one by one, those that begin before ``until_ps``."""
    flat, machine = run.flat, run.machine
    assert flat is not None and machine is not None and not run.folded  # noqa: S101, PT018 - the caller has looked
    if run.engine == "events":
        exact = _again(program, run, until_ps)
        if exact is not None:
            return exact
    hops = np.diff(flat.hop_starts)
    begin, stop, sizes = (
        np.repeat(each[: flat.n_messages], hops) for each in (run.start_ps, run.end_ps, flat.size_bytes)
    )
    needs = np.where(np.isfinite(machine.ps_per_byte), machine.ps_per_byte, 0.0)[flat.hops] * sizes
    share = np.clip(needs / np.maximum(stop - begin, 1), 0.0, 1.0)
    late = begin >= until_ps
    begin, stop = np.where(late, FOREVER, begin), np.where(late, FOREVER, stop)
    return RunPassages(begin, stop, stop, share, is_exact=False)


def _again(program: Program, run: Run, until_ps: int) -> RunPassages | None:
    """Return what the event loop does, followed once more; None where it does not begin each message when the run does."""
    flat, machine = run.flat, run.machine
    assert flat is not None and machine is not None  # noqa: S101, PT018 - the caller has looked
    by_ps, asked = run.base_ps, flat
    if run.come_ps is not None:
        there = run.come_ps[list(program.collective.group)]
        by_ps += int(there.min())
        if there.max() > there.min():
            asked = gated(flat, np.maximum(run.come_ps - there.min(), 0))
    limit = until_ps - by_ps if until_ps < FOREVER else FOREVER
    told = (each[: flat.n_hops] for each in served(asked, machine.carrying(program), limit))
    begin, stop, leave = (np.where(each < FOREVER, each + by_ps, FOREVER) for each in told)
    first = flat.hop_starts[:-1][np.diff(flat.hop_starts) > 0]
    starts = run.start_ps[: flat.n_messages][np.diff(flat.hop_starts) > 0]
    seen = (begin[first] < FOREVER) | (starts < until_ps)
    if not (begin[first] == starts)[seen].all():
        return None
    return RunPassages(begin, stop, leave, np.ones(len(begin)), is_exact=True)
