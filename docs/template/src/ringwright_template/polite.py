"""Ranks that give way: local processes that share memory, at a lower priority than what else runs."""

import dataclasses

from ringwright.execute.executor import Executor


class Polite(Executor):
    """Starts every rank under ``nice``."""

    def starts(self, *given, **named):
        """Return what starts the ranks."""
        starts = super().starts(*given, **named)
        return [dataclasses.replace(start, argv=("nice", "-n", "5", *start.argv)) for start in starts]


EXECUTOR = Polite("polite", "memory", says="local processes that share memory and give way to others")
