"""Environment variables for NCCL: lines as ``docker run --env-file`` and ``/etc/nccl.conf`` take them, or of a shell.

The two differ: lists for single collectives have semicolons, which end a command of a shell, and quotes would become part of the
value in the other one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ringwright.costs.nccl.constants import release_numbers
from ringwright.costs.nccl.environment import EVERY_OP, Lists, NcclEnvironment, op_words
from ringwright.costs.nccl.names import spelled

HEAD = "# NCCL "
_CTAS_FROM = (2, 17)


def nccl_environment(environment: NcclEnvironment) -> bytes:
    """Return the lines as they stand, for ``--env-file``."""
    lines = [f"{name}={value}" for name, value in variables(environment)]
    return "\n".join([f"{HEAD}{environment.release}", *lines, ""]).encode("ascii")


def nccl_environment_shell(environment: NcclEnvironment) -> bytes:
    """Return the lines for a shell: exported, and quoted where one would read them otherwise."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables(environment)]
    return "\n".join([f"{HEAD}{environment.release}", *lines, ""]).encode("ascii")


def variables(environment: NcclEnvironment) -> Iterator[tuple[str, str]]:
    """Yield each variable with its value."""
    release = environment.release
    for name, lists in (("NCCL_ALGO", environment.algorithms), ("NCCL_PROTO", environment.protocols)):
        if lists:
            yield name, _listed(lists, release)
    counted = "CTAS" if release_numbers(release)[:2] >= _CTAS_FROM else "NCHANNELS"
    for end, number in (("MIN", environment.min_channels), ("MAX", environment.max_channels)):
        if number is not None:
            yield f"NCCL_{end}_{counted}", str(number)
    if environment.buffer_bytes is not None:
        yield "NCCL_BUFFSIZE", str(environment.buffer_bytes)
    yield from environment.others.items()


def _listed(lists: Lists, release: str) -> str:
    """Return lists as NCCL has them: the one for all first, which alone has no name."""
    every = [_words(lists[EVERY_OP], release)] if EVERY_OP in lists else []
    return ";".join([*every, *(f"{word}:{_words(lists[op], release)}" for op, word in op_words() if op in lists)])


def _words(names: tuple[str, ...], release: str) -> str:
    return ",".join(spelled(name, release) for name in names)
