"""A verb of a package that is not installed: says which package that is, and how to install it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from ringwright.ground import laboratory


def absent(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
    """Comes with ringwright-lab, which is not installed: call the verb to be told how to install it.

    Parameters
    ----------
    words
        What was typed behind the verb.
    """
    verb = next((word for word in sys.argv[1:] if word in laboratory.VERBS), "this verb")
    laboratory.require(f"ringwright {verb}")
    return len(words)
