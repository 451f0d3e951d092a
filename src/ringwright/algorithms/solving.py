"""CP-SAT run so that the same question gets the same answer, and that a person or a budget can stop it."""

from __future__ import annotations

import math
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver

    from ringwright.algorithms.searching import Deadline

LISTENS_S = 0.05


def solved(model: CpModel, work: float, seed: int, deadline: Deadline) -> tuple[CpSolver, Any]:
    """Return the solver and its status after at most ``work`` of its deterministic time, on one thread.

    It runs beside the caller's thread, which so hears of Ctrl-C: the search ends, and the deadline remembers who ended it.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = work
    solver.parameters.catch_sigint_signal = False
    if math.isfinite(deadline.left_s):
        solver.parameters.max_time_in_seconds = deadline.left_s
    status: list[Any] = []
    done = Event()  # a thread that is joined and interrupted counts as ended, an event does not

    def run() -> None:
        try:
            status.append(solver.solve(model))
        finally:
            done.set()

    Thread(target=run, daemon=True).start()
    while not done.is_set():
        try:
            done.wait(LISTENS_S)
            if deadline.by_person or deadline.stopped:
                solver.stop_search()
        except KeyboardInterrupt:
            deadline.interrupted()
    deadline.passed()
    return solver, status[0] if status else cp_model.UNKNOWN
