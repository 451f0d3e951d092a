"""A broken rule of a Workload."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A broken rule: what, where (task or payload, class or rank), and what to do. ``severity`` is error or warning."""

    rule: str
    message: str
    where: str = ""
    remedy: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}" + (f" ({self.where})" if self.where else "")


def doubt(rule: str, message: str, where: str = "", remedy: str = "") -> Finding:
    """Return a finding that does not keep the workload from running."""
    return Finding(rule, message, where, remedy, "warning")
