"""How this program was called: what it tells a person to type next begins with those words, so that it runs as it stands.

``ringwright`` where that is what the shell finds, ``scripts/ringwright`` or ``.venv/bin/ringwright`` where that was typed,
``python -m ringwright`` where the package was run. What is stored (JSON, pages) always says ``ringwright``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

NAME = "ringwright"
PYTHONS = ("python", "python3")
TOLD_BY_SCRIPT = "RINGWRIGHT_CALLED_AS"  # a script that starts the program says here how it was typed itself


@dataclass(frozen=True)
class _Caller:
    words: str
    command: re.Pattern[str]


_caller: ContextVar[_Caller | None] = ContextVar("caller", default=None)


@contextmanager
def as_typed(words: str, verbs: Iterable[str]) -> Iterator[None]:
    """Have ``as_called`` speak like this while the body runs; ``verbs`` are what may follow the program's name."""
    choice = "|".join(map(re.escape, (*verbs, "--help")))
    before = _caller.set(_Caller(words, re.compile(rf"(?<![\w/.-]){NAME}(?= (?:{choice})(?![\w-]))")))
    try:
        yield
    finally:
        _caller.reset(before)


def as_called(text: str) -> str:
    """Return a text whose commands (``ringwright VERB``) begin with how this program was called."""
    caller = _caller.get()
    if caller is None or caller.words == NAME:
        return text
    return caller.command.sub(lambda _: caller.words, text)


def words() -> str:
    """Return how this process was started, as it can be typed again; takes the script's word out of the environment."""
    told = os.environ.pop(TOLD_BY_SCRIPT, "")
    started = told or sys.argv[0]
    if not told and Path(started).parts[-2:] == (NAME, "__main__.py"):
        return f"{python()} -m {NAME}"
    if Path(started).name != NAME:
        return NAME  # called from Python, or under another name
    return shlex.quote(found_as(started, NAME))


def python() -> str:
    """Return how a shell in this folder starts the Python that runs this, quoted where it needs that."""
    return shlex.quote(found_as(sys.executable, *PYTHONS))


def found_as(path: str, *names: str) -> str:
    """Return the shortest words by which a shell in this folder starts a file: a name that it finds, else a path, not quoted."""
    for name in names:
        if path == name or Path(shutil.which(name) or "").absolute() == Path(path).absolute():  # links count as typed
            return name
    below = os.path.relpath(path)
    short = path if below.startswith(os.pardir) else below
    return short if os.sep in short else f"{os.curdir}{os.sep}{short}"
