"""Options that cut the ranks into the groups of a job, and say what other groups do at the same time."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.search.concurrent_groups import GroupCall
    from ringwright.search.question import SynthesisSpec


@Parameter(name="*", group=options.QUESTION)
@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """Groups of ranks along the axes of a job, all of which communicate at the same time."""

    groups: Annotated[
        str | None, Parameter(help="Cut the ranks into groups along axes, the first runs fastest: tp=8,dp=2.")
    ] = None
    over: Annotated[
        str | None, Parameter(help="Axis whose groups do the collective, all at once; the first one if left out.")
    ] = None
    beside: Annotated[
        tuple[str, ...], Parameter(help="What groups along another axis do meanwhile: 'all-reduce 1G on dp'.")
    ] = ()

    def calls(self, op: str, sizes: Sequence[int], ranks: Sequence[int]) -> list[GroupCall]:
        """Return what is asked of groups, none where no groups are; raise UsageError for what has no meaning."""
        if self.groups is None:
            if self.over is not None or self.beside:
                raise UsageError("--over and --beside are about groups", remedy="--groups tp=8,dp=2")
            return []
        from ringwright.search.concurrent_groups import GroupCall, call, grouped

        if len(sizes) != 1:
            raise UsageError(f"{len(sizes)} sizes: groups are planned together for one", remedy="--size 1G")
        axes = grouped(self.groups, ranks)
        axis = next(iter(axes)) if self.over is None else self.over
        if axis not in axes:
            raise UsageError(f"no axis is named '{axis}'", remedy=f"--over, one of: {', '.join(axes)}")
        return [GroupCall(op, sizes[0], axis, axes[axis]), *(call(text, axes) for text in self.beside)]


def plan_together(question: SynthesisSpec, calls: Sequence[GroupCall], *, json: bool) -> int:
    """Plan groups that communicate at the same time, each alone and all as one, and print the answer; return the exit code."""
    from ringwright.reports.calls import shared_machine
    from ringwright.search.concurrent_groups import share

    with progress.steps("planning") as advance:
        result = share(
            calls,
            question.topology,
            link_model=question.link_model,
            seed=question.seed,
            budget_s=question.budget_s,
            progress=advance,
        )
    if json:
        reading.print_json(result.document())
        return 0
    shared_machine.write(result, sys.stdout)
    return 0
