"""Is this program legal, and does it do what it says? A Program, or a file that holds one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ringwright.calls import arguments
from ringwright.calls.numerics import Numerics, measured
from ringwright.calls.switch_assignment import seated
from ringwright.formats.sources.programs.program_files import verify_file
from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import card, line, table
from ringwright.model.program import Program
from ringwright.model.validity import Violation, check

MOST = 50


@dataclass(frozen=True, repr=False)
class Verified:
    """What was found out about a program. It is true where the program is legal, so ``if ringwright.verify(program):`` reads.

    ``numerics`` says how far its sums of floats are from exact ones, where the network adds them in a format of its own
    (None otherwise, and for programs of more than ``ringwright.calls.numerics.MOST_NUMBERS``).
    """

    name: str
    errors: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()
    numerics: Numerics | None = None

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.errors

    def __bool__(self) -> bool:
        return self.valid

    def __repr__(self) -> str:
        doubts = f", {_counted(len(self.warnings), 'warning')}" if self.warnings else ""
        if self.valid:
            adds = f", {self.numerics.brief}" if self.numerics else ""
            return line(f"Verified({self.name}: legal{doubts}{adds})")
        broken = _counted(len(self.errors), "broken rule")
        return line(f"Verified({self.name}: not legal, {broken}{doubts}, first {self.errors[0]})")

    def _repr_html_(self) -> str:
        violations = (*self.errors, *self.warnings)
        if not violations:
            return card(f"{self.name}: legal", {"sums": self.numerics.brief} if self.numerics else {})
        rows = ((each.severity, each.rule, each.rank, each.step, each.chunk, each.message) for each in violations)
        state = "legal, with warnings" if self.valid else "not legal"
        return table(f"{self.name}: {state}", ("severity", "rule", "rank", "step", "chunk", "what"), rows)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def verify(what: Program | str | Path, on: arguments.Machine | None = None) -> Verified:
    """Check a program against every rule: what it reads and writes, deadlock, races, its declared cost and its result.

    Parameters
    ----------
    what
        A Program, or the path of an MSCCL XML file or an MSCCL++ plan.
    on
        The machine, a Topology or its name: what the program does in the network is then held to what switches there can do.

    Returns
    -------
    Verified
        True where the program is legal. ``errors`` and ``warnings`` name rule, rank, step and chunk (-1 where a number
        does not apply), fifty of them at the most; ``numerics`` how far sums are off that switches make in a number format.

    Raises
    ------
    InputError
        The file cannot be read, or is of no known format.
    UsageError
        The machine does not exist, or has no switch where the program needs one.
    InfeasibleError
        The Program is too large to be followed: check the same algorithm on fewer ranks.

    Examples
    --------
    >>> import ringwright
    >>> box = ringwright.fabric("switch:4")
    >>> all_reduce = ringwright.Collective("all-reduce", range(4), 4096)
    >>> ringwright.verify(ringwright.algorithm("ring")(all_reduce, box))
    Verified(ring: legal)
    >>> in_switch = ringwright.algorithm("collnet-direct")(all_reduce, ringwright.fabric("switch:4,sharp=true"))
    >>> ringwright.verify(in_switch, "switch:4")
    Verified(collnet-direct: not legal, 1 broken rule, first capability: switch of switch:4 adds nothing)
    """
    topology = None if on is None else arguments.machine(on)
    if isinstance(what, Program):
        what = what if topology is None else seated(what, topology)
        violations = check(what, most=MOST, warnings=True, topology=topology)
        errors = tuple(each for each in violations if each.severity == "error")
        warnings = tuple(each for each in violations if each.severity != "error")
        if errors:
            return Verified(what.name, errors, warnings)
        try:
            return Verified(what.name, (), warnings, measured(what, topology))
        except UsageError as error:  # more workers than the format has room for
            return Verified(what.name, (Violation("codec", error.what),), warnings)
    told = verify_file(what, topology, seated)
    kinds = {"error": told["errors"], "warning": told["warnings"]}
    errors, warnings = (tuple(_violation(row, kind) for row in rows) for kind, rows in kinds.items())
    return Verified(told["name"] or Path(what).name, errors, warnings)


def _violation(row: dict[str, object], severity: str) -> Violation:
    rank, step, chunk = (value if isinstance(value := row[name], int) else -1 for name in ("rank", "step", "chunk"))
    line = f" (line {row['line']})" if row["line"] else ""
    return Violation(str(row["rule"]), f"{row['message']}{line}", rank, step, chunk, severity)
