"""A range of sizes, with the flags of nccl-tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options
from ringwright.ground.errors import UsageError
from ringwright.ground.units import parse_size


@Parameter(name="*", group=options.SIZES)
@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes from the smallest to the largest."""

    begin: Annotated[
        str,
        Parameter(
            name=["--begin", "-b"], help="Smallest size (usual: simulate 1K, bench 64K, library 8).", show_default=False
        ),
    ] = "8"
    end: Annotated[str | None, Parameter(name=["--end", "-e"], help="Largest size; only the smallest if left out.")] = (
        None
    )
    factor: Annotated[float, Parameter(name=["--factor", "-f"], help="From one size to the next.")] = 2
    step: Annotated[str | None, Parameter(name=["--step", "-i"], help="Bytes from one size to the next instead.")] = (
        None
    )

    def or_one(self, size: str | None, usual: Sizes) -> Sizes:
        """Return these sizes, or the one that ``--size`` names; raise UsageError where both are said."""
        if size is None:
            return self
        if self != usual:
            raise UsageError(
                "--size and --begin both say the size", remedy="-b, -e and -f for several sizes, or --size"
            )
        return Sizes(begin=size)

    def listed(self, op: str) -> list[int]:
        """Return the sizes in bytes at which an operation is asked about."""
        from ringwright.calls.simulate import sizes
        from ringwright.model.collective import carried

        step = parse_size(self.step) if self.step else 0
        return carried(op, sizes(parse_size(self.begin), parse_size(self.end or self.begin), self.factor, step))
