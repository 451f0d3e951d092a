"""The two models of a link and their names: is it free again when the last byte has left, or only after its latency?

``pipelined`` and ``blocking`` are what people type and read; engines and bounds call the second one ``busy``, which is
still read.
"""

from __future__ import annotations

from ringwright.ground.errors import UsageError

ALPHA_OF = {"pipelined": "pipelined", "blocking": "busy"}  # what engines and bounds call the two models
NAME_OF = {alpha: name for name, alpha in ALPHA_OF.items()}


def named(word: str) -> str:
    """Return the name of a link model, also of one that is spelled as engines do; raise UsageError for what is none."""
    name = NAME_OF.get(word, word)
    if name not in ALPHA_OF:
        raise UsageError(f"'{word}' is no link model", remedy=f"--link-model, one of: {', '.join(ALPHA_OF)}")
    return name
