"""Verbs of a package that is not installed: each says which package that is, and how to install it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from ringwright.ground import laboratory


def absent(verb: str) -> Callable[..., None]:
    """Return what stands in the place of a verb: whatever follows it, it raises MissingExtraError with what to install."""

    def called(*words: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
        """Comes with ringwright-lab, which is not installed: call the verb to be told how to install it."""
        del words
        laboratory.require(f"ringwright {verb}")

    return called
