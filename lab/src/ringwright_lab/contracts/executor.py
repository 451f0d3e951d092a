"""The contract of executors: right to the bit on real ranks, an end whatever happens, and the rank that failed by name.

Small programs run on two and three ranks; then one whose message is never sent, and one in which a rank fails. What an executor
needs and is not here counts as declined.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ringwright.execute import batch, check
from ringwright.execute.executors import Executor
from ringwright.execute.executors import executor as of_name
from ringwright.execute.plan import Do, NodePlan, plans
from ringwright.ground.errors import RanksFailedError, RingwrightError
from ringwright.model.collective import Collective
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput

if TYPE_CHECKING:
    from ringwright.model.program import Program

RANKS = (2, 3)
TYPES = ("float32", "int32", "float64")
TIMEOUT_S = 5.0
WAITS_S = 1.0  # without progress, where a message is never sent
STARTED_S = 20.0  # for the commands that start the ranks
KNOWN = ("processes", "mpi", "torch", "torch-nccl")
Change = Callable[[NodePlan], Mapping[str, Any]]


@dataclass(frozen=True)
class TriedExecutor:
    """An executor under trial, and the seconds in which its ranks must have made progress."""

    executor: Executor
    timeout_s: float

    def run(self, programs: Sequence[Program], timeout_s: float = 0.0, **how: Any) -> list[list[Any]]:
        """Return every node's answers to each program; RanksFailedError where ranks did not come to their end."""
        return batch.run_all(self.executor, programs, timeout_s=timeout_s or self.timeout_s, **how)


def programs(ranks: int, dtypes: Sequence[str] = ()) -> list[Program]:
    """Return small programs of so many ranks: sums in several types, one from a root, parts of each for each."""
    from ringwright.algorithms.blocks.binomial import binomial
    from ringwright.algorithms.blocks.direct import direct
    from ringwright.algorithms.blocks.ring import ring

    sums = [ring(Collective("all-reduce", range(ranks), 8 * 1021, dtype)) for dtype in dtypes or TYPES]
    return [
        *sums,
        binomial(Collective("broadcast", range(ranks), 4 * 333, root=ranks - 1)),
        direct(Collective("all-to-all", range(ranks), 4 * ranks * ranks * 5)),
    ]


def declared(tried: TriedExecutor) -> str | None:
    """It says in words over what messages go, names a wire, and who starts the ranks."""
    own = tried.executor
    if not own.says or not own.wire:
        return f"it does not say {'over what messages go (says)' if own.wire else 'its wire'}"
    return None if own.backend in KNOWN else f"the backend '{own.backend}' is not one of {', '.join(KNOWN)}"


def starts(tried: TriedExecutor) -> str | None:
    """In time it gives commands that start every rank once; one that starts all of them names none."""
    answered: list[Any] = []

    def ask() -> None:
        try:
            answered.append(tried.executor.starts(Path("/nowhere"), 3))
        except Exception as error:  # noqa: BLE001 - code of others may raise anything
            answered.append(error)

    asked = threading.Thread(target=ask, daemon=True)
    asked.start()
    asked.join(STARTED_S)
    if not answered:
        return f"after {STARTED_S:g} s it has not said how ranks are started"
    if isinstance(answered[0], Exception):
        return f"raised {type(answered[0]).__name__}: {answered[0]}"
    ranks = sorted(rank for start in answered[0] for rank in start.ranks)
    starts_all = len(answered[0]) == 1 and not ranks
    return None if starts_all or ranks == [0, 1, 2] else f"of 3 ranks it starts {ranks}"


def right(tried: TriedExecutor) -> str | None:
    """Every rank ends with what the interpreter says, to the bit, whatever the type; and the same again."""
    for ranks in RANKS:
        asked = programs(ranks) * 2
        for program, answers in zip(asked, tried.run(asked, seed=ranks), strict=True):
            if why := batch.wrong(program, answers, seed=ranks):
                return f"{program.collective.op} of {program.collective.dtype} on {ranks} ranks: {why}"
    return None


def reals(tried: TriedExecutor) -> str | None:
    """Sums of real numbers are within what some order of additions gives."""
    asked = programs(3, ("float32",))[:1]
    (answers,) = tried.run(asked, seed=3, reals=True)
    difference = check.within_order(asked[0], answers, seed=3)
    return None if difference is None else str(difference)


def ends(tried: TriedExecutor) -> str | None:
    """Where a message is never sent, it ends in time, and says which rank waits for which."""
    (program,) = programs(3, ("float32",))[:1]
    began_s = time.monotonic()
    try:
        tried.run([program], WAITS_S, cut=partial(_changed, change=_unsent))
    except RanksFailedError as error:
        took_s = time.monotonic() - began_s
        if took_s > WAITS_S + batch.START_S + STARTED_S:
            return f"a message that is never sent ends it after {took_s:.0f} s"
        return None if "receives from rank 1" in error.what else f"nobody says who waits for rank 1: {error.what}"
    return "a message was never sent, and it says that all is well"


def blames(tried: TriedExecutor) -> str | None:
    """Where a rank fails, it says which one."""
    (program,) = programs(3, ("float32",))[:1]
    try:
        tried.run([program], cut=partial(_changed, change=_outside))
    except RanksFailedError as error:
        return None if "rank 1 failed: " in error.what else f"rank 1 failed, and it says: {error.what}"
    return "rank 1 failed, and it says that all is well"


def _changed(program: Program, change: Change) -> list[NodePlan]:
    """Return the plans of a program, that of rank 1 changed."""
    cut = plans(program)
    cut[1] = msgspec.structs.replace(cut[1], **change(cut[1]))
    return cut


def _unsent(plan: NodePlan) -> Mapping[str, Any]:
    last = len(plan.sends) - 1
    return {"order": [each for each in plan.order if each not in [(Do.SEND, last), (Do.SENT, last)]]}


def _outside(plan: NodePlan) -> Mapping[str, Any]:
    """The last message goes to where no memory is."""
    last = plan.receives[-1]
    run = msgspec.structs.replace(last.runs[0], at=plan.arena_bytes, adds=True)
    return {"receives": [*plan.receives[:-1], msgspec.structs.replace(last, runs=[run])]}


CHECKS: dict[str, Callable[[TriedExecutor], str | None]] = {
    "declared": declared,
    "starts": starts,
    "right": right,
    "reals": reals,
    "ends": ends,
    "blames": blames,
}


def check_executor(executor: str | Executor, *, timeout_s: float = TIMEOUT_S) -> list[Outcome]:
    """Return the outcome of every check on an executor; ``failures`` of them lists what is wrong.

    Checked is, on two and three real ranks of this machine, that results are right to the bit, that a message that is never sent
    ends the run in time, and that a rank that fails is named.

    Parameters
    ----------
    executor
        Its name, of the house or of an entry point of ``ringwright.executors``, or an ``Executor``.
    timeout_s
        Seconds after which ranks that made no progress have failed.

    Returns
    -------
    list of Outcome
        One: the executor.

    Examples
    --------
    >>> from ringwright_lab.testing import check_executor, failures
    >>> failures(check_executor("memory"))
    []
    """
    name = executor if isinstance(executor, str) else executor.name
    outcome = Outcome(TriedInput(name, "2 and 3 ranks"))
    try:
        own = of_name(executor) if isinstance(executor, str) else executor
        missing = own.missing()
    except RingwrightError as error:
        outcome.failed["known"] = error.what
        return [outcome]
    tried = TriedExecutor(own, timeout_s)
    for check_name, look in CHECKS.items():
        if missing and check_name != "declared":
            outcome.note("ready", f"{DECLINED}{missing}")
            break
        if not outcome.run(check_name, partial(look, tried)) and check_name in ("declared", "starts", "right"):
            break
    return [outcome]
