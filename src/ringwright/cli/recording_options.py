"""Options of every verb that reads recordings: further rules for kernels, and where a file's name has its rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ringwright.ground.errors import UsageError

KERNELS, RANKS = "--kernel-patterns", "--rank-from"
READING = frozenset("advise check convert diff doctor live provision query read report simulate summary survey".split())
HELP = f"Recordings: {KERNELS} FILE adds rules for kernels, {RANKS} 'worker-{{rank}}-*.json' finds ranks in names."


@contextmanager
def told(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Give the arguments without these two, which hold while the body runs; what follows ``--`` is another program's."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    if not READING & {*words[:end]} or not any(word.startswith((KERNELS, RANKS)) for word in words[:end]):
        yield words
        return
    from ringwright.formats.sources import ranks
    from ringwright.formats.sources.kineto import catalogue

    own, said = _taken(words[:end])
    if KERNELS in said:
        catalogue.load(said[KERNELS])  # what is wrong with the file is told before anything is read
    with catalogue.patterns(said.get(KERNELS)), ranks.named_by(said.get(RANKS)):
        yield [*own, *words[end:]]


def _taken(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the other words, and the value of each of the two; UsageError where one has none or is named twice."""
    own: list[str] = []
    said: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if name not in (KERNELS, RANKS):
            own.append(word)
            continue
        value = value if sign else next(rest, "")
        if not value or name in said:
            what = f"{name} is given twice" if name in said else f"{name} names nothing"
            raise UsageError(what, remedy=HELP)
        said[name] = value
    return own, said
