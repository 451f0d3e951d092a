"""What can go wrong, as one tree; each error says what, where, and which command comes next.

RingwrightError
├── UsageError            exit 2   the question cannot be asked like that
│   ├── OutputError       exit 2   what was asked for cannot be written there; what stood there is unchanged
│   ├── OperationError    exit 2   a system does no such operation
│   ├── FanInError        exit 2   the switches that add do not join these ranks, or not as many
│   └── PluginError       exit 2   what another distribution adds cannot be used
├── InputError            exit 3   nothing usable could be read
│   ├── SchemaError       exit 3   a capture of a schema this release cannot open
│   └── StrictError       exit 3   something was lost and ``--strict`` was asked
├── GateError             exit 1   a gate or check failed: a finding, not a fault
├── MissingExtraError     exit 2   an optional library is not installed
├── ProgramError          exit 4   a program is not legal
├── WorkloadError         exit 4   a workload is not legal
└── InfeasibleError       exit 5   no answer exists, or none in the time allowed
    ├── DeclinedError     exit 5   this engine cannot answer exactly; another one may
    ├── NeverArrivesError exit 5   a message waits for ever, as its link is down for good
    ├── JobEndsError      exit 5   a transport gives up, or nothing tries again: the job ends, which is an answer
    └── RanksFailedError  exit 5   a rank of a job died, or nothing moved any more

Examples
--------
>>> import ringwright
>>> try:
...     ringwright.fabric("dgx-h200:2")
... except ringwright.errors.UsageError as error:
...     print(error.what)
no fabric is named 'dgx-h200'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

EXIT_GOOD = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_INPUT = 3
EXIT_PROGRAM = 4
EXIT_INFEASIBLE = 5
EXIT_OUR_BUG = 70


class RingwrightError(Exception):
    """Base of every error a user can meet: ``what``, ``where`` (may be empty), ``remedy`` (a command)."""

    exit_code = EXIT_OUR_BUG

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"  at:  {self.where}")
        if self.remedy:
            parts.append(f"  try: {self.remedy}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        """Let it come from another process, whatever its class is made of."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[RingwrightError], args: tuple[object, ...], state: dict[str, object]) -> RingwrightError:
    made = kind.__new__(kind)
    made.args = args
    made.__dict__.update(state)
    return made


class UsageError(RingwrightError):
    """The arguments contradict each other or name something that does not exist."""

    exit_code = EXIT_USAGE


class OutputError(UsageError):
    """The output cannot be written: the disk is full, or the place is closed to us. What stood there before is unchanged."""


class OperationError(UsageError):
    """A system does no such operation; another one may."""


class FanInError(UsageError):
    """The switches that add do not join these ranks: there is none on their way, or it adds fewer contributions."""


class PluginError(UsageError):
    """A plug-in of another distribution cannot be loaded, or fails; the message names both."""


class InputError(RingwrightError):
    """The input holds nothing that could be read."""

    exit_code = EXIT_INPUT


class SchemaError(InputError):
    """A capture was written by a schema that this release does not know."""


class StrictError(InputError):
    """``--strict`` was asked and the ledger refused a line."""


class GateError(RingwrightError):
    """A threshold was crossed; the message ends with one line fit for a CI annotation."""

    exit_code = EXIT_GATE


class MissingExtraError(UsageError):
    """An optional library is missing; the remedy is the command that installs the ``extra``.

    ``only`` names those of its libraries that are enough; without an extra they are libraries of the core.
    """

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", extra: str = "", only: Sequence[str] = ()
    ) -> None:
        from ringwright.ground.extras import install

        super().__init__(what, where=where, remedy=remedy or install(extra, *only))


class ProgramError(RingwrightError):
    """A communication program breaks a rule of legality."""

    exit_code = EXIT_PROGRAM


class WorkloadError(RingwrightError):
    """A workload breaks a rule of legality; the message names the task or payload, and the class or rank."""

    exit_code = EXIT_PROGRAM


class InfeasibleError(RingwrightError):
    """The question has no answer, or none within the time given."""

    exit_code = EXIT_INFEASIBLE


class NeverEndsError(InfeasibleError):
    """Tasks and operations of a job wait for each other for ever."""


class NeverArrivesError(InfeasibleError):
    """A message never arrives: ``src`` and ``dst`` are nodes of the machine, ``due_s`` is when the first such one was to go."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "", src: int, dst: int, due_s: float) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.src, self.dst, self.due_s = src, dst, due_s


class JobEndsError(InfeasibleError):
    """The job ends. ``kind``: ``given-up`` (by a transport, after its own retries) or ``dead-link`` (where nothing tries again).

    ``why`` in words; ``between`` the two ends; ``at_s``: when, in seconds from the start of the collective; ``prints``: what the
    library would print; ``failover``: why it does not go on by another NIC, where the library has releases that can.
    ``ranks``: of the collective that meets it, where a job asks.
    """

    def __init__(self, kind: str, why: str, *, between: str, at_s: float, prints: str) -> None:
        where = f"{between} at {at_s:.6g} s; the library would print: {prints}"
        remedy = "a shorter outage, or an algorithm and a fabric that avoid the dead link"
        super().__init__(f"the job ends: {why}", where=where, remedy=remedy)
        self.kind, self.why, self.between, self.at_s, self.prints = kind, why, between, at_s, prints
        self.failover = ""
        self.ranks: tuple[int, ...] = ()


class LostTaskError(InfeasibleError):
    """A task ends its worker, or hangs, whoever works; ``number`` is its index among those given."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "", number: int) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.number = number


class RanksFailedError(InfeasibleError):
    """Real ranks did not come to their end; ``answers`` are what each of them had found by then."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "", answers: Sequence[Any] = ()) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.answers = answers


class DeclinedError(InfeasibleError):
    """An engine, or a way to shorten its work, does not apply to this program on this machine; ``what`` is the reason."""
