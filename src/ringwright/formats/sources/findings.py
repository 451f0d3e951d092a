"""What is wrong with a program file: rules, places and lines, collected rather than raised one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ringwright.ground.errors import ProgramError
from ringwright.model.validity import Violation

MOST = 100
# A file may not ask for more than this: slots over all ranks, and chunks that all its instructions touch together.
MOST_SLOTS = 1 << 23
MOST_TOUCHED = 1 << 24
MOST_RANKS = 1 << 14
# Rules that are checked while a file is read; the rest are in validity.RULES.
READING_RULES = {
    "xml": "the file is well-formed XML with one root, without a document type, of bounded size and depth",
    "json": "the file is JSON of bounded size and depth, with the fields of a plan",
    "attribute": "every attribute has its type, and a value that the format knows",
    "gpus": "every rank has one part of the file",
    "chunks": "the chunks of the buffers agree with what the collective cuts them into",
    "limits": "numbers are dense and within what the runtime can hold",
    "peer": "an instruction that sends or receives has a peer to do it with",
    "index": "every chunk named lies in its buffer",
    "dependency": "a dependency names a step of the same rank that publishes its progress",
    "window": "the window of sizes is not empty",
}


@dataclass(frozen=True)
class FileFinding:
    """A violation and the line of the file; 0 where no line applies."""

    violation: Violation
    line: int


class FileFindings:
    """The findings of one file, at the most ``MOST`` errors and as many warnings of them kept."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.findings: list[FileFinding] = []
        self.dropped = 0
        self._counts: dict[str, int] = {}

    def add(
        self,
        rule: str,
        message: str,
        line: int = 0,
        *,
        rank: int = -1,
        step: int = -1,
        chunk: int = -1,
        severity: str = "error",
    ) -> None:
        """Note a broken rule."""
        self._keep(FileFinding(Violation(rule, message, rank, step, chunk, severity), line))

    def _keep(self, finding: FileFinding) -> None:
        severity = finding.violation.severity
        self._counts[severity] = self._counts.get(severity, 0) + 1
        if self._counts[severity] <= MOST:
            self.findings.append(finding)
        elif severity == "error":
            self.dropped += 1

    def extend(self, violations: list[Violation]) -> None:
        """Note what ``validity`` found."""
        for violation in violations:
            self._keep(FileFinding(violation, 0))

    @property
    def errors(self) -> list[FileFinding]:
        """Findings that make the program illegal."""
        return [each for each in self.findings if each.violation.severity == "error"]

    @property
    def warnings(self) -> list[FileFinding]:
        """Findings that do not."""
        return [each for each in self.findings if each.violation.severity != "error"]

    def error(self) -> ProgramError:
        """Return the first error, ready to raise."""
        first, count = self.errors[0], len(self.errors) + self.dropped
        violation = first.violation
        where_in = [f"{name} {number}" for name, number in violation.place() if number >= 0]
        where = ", ".join([f"{self.path}:{first.line}" if first.line else self.path, *where_in])
        more = f" and {count - 1} more" if count > 1 else ""
        return ProgramError(
            f"{violation.rule}: {violation.message}{more}", where=where, remedy=f"ringwright verify {self.path}"
        )
