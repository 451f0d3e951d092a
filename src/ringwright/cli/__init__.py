"""The command line: one file per verb, loaded when called; errors in three parts, exit codes as documented.

In: words. Out: what a report prints, or one JSON object, and an exit code. Start reading: `verbs`, then the file of a verb.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from types import FrameType

from ringwright.cli import progress, recording_options
from ringwright.cli.application import app, explain
from ringwright.cli.verbs import VERBS
from ringwright.ground import invocation
from ringwright.ground.errors import EXIT_GOOD, EXIT_INPUT, EXIT_OUR_BUG, EXIT_USAGE, RingwrightError, UsageError

__all__ = ["VERBS", "app", "harmless", "main"]
STDIN = "<stdin>"
_OUTPUTS = ("-o", "--output", "--out", "--trace")
ERROR_SCHEMA = "ringwright.error/1"  # what --json prints where nothing could be read
_INTERRUPTED = 130
# Before a search for garbage in a process of ours: steps of jobs are many small objects in no cycle, among which Python's usual
# searches, after 700, take up to a quarter of the time.
NEW_OBJECTS = 50_000


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; ``arguments`` default to those of the process."""
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        gc.set_threshold(NEW_OBJECTS)
    with (
        invocation.as_typed(invocation.words() if arguments is None else invocation.NAME, VERBS),
        progress.spoken(given) as words,
    ):
        return _answered(words)


def _answered(given: list[str]) -> int:
    """Dispatch, and make of whatever goes wrong a message and an exit code."""
    code = EXIT_GOOD
    try:
        with _terminable(), _closed_pipe_as_one_error(), _ranks(given) as asks, recording_options.told(given) as words:
            code = _dispatch(words) if asks else EXIT_GOOD
            sys.stdout.flush()
    except RingwrightError as error:
        if error.exit_code == EXIT_INPUT and _wants_json(given):
            _print_error(error)
        _say(str(error))
        return error.exit_code
    except BrokenPipeError:
        _silence()  # the reader of our pipe has seen enough; a gate that has failed by then stays failed
        return code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        return _refused_by_the_system(error, given)
    except Exception as error:  # noqa: BLE001 - the one place where a bug becomes a message
        return _our_bug(error, given)
    return code


def _ranks(given: list[str]) -> contextlib.AbstractContextManager[bool]:
    """Return what says whether this process asks: of ranks of MPI all but the first only answer."""
    if not any(word.endswith("mpi") for word in (*given, os.environ.get("RINGWRIGHT_EXECUTOR", ""))):
        return contextlib.nullcontext(enter_result=True)
    from ringwright.executors.kinds.mpi import ranks

    return ranks(given)


@contextlib.contextmanager
def _closed_pipe_as_one_error() -> Iterator[None]:
    """Raise BrokenPipeError also where the library that draws our reports makes a closed pipe the end of the process."""
    try:
        yield
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            raise leaving.__context__ from None
        raise


def _silence() -> None:
    """Keep the interpreter from flushing into an output that takes no more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused_by_the_system(error: OSError, arguments: list[str]) -> int:
    """Tell what stands in the way of an output, or of an input that no reader told of; anything else is a bug of ours."""
    from ringwright.ground import drafts

    if error.errno not in drafts.REFUSED or error.errno == errno.ENOENT:
        return _our_bug(error, arguments)
    name = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
    outputs = [word for before, word in pairwise(arguments) if before in _OUTPUTS]
    is_output = any(name.startswith(word) or word.startswith(name) for word in outputs)
    is_there = os.path.exists(name)  # noqa: PTH110 - in a closed folder Path.exists raises
    is_read = is_there and not is_output and error.errno not in drafts.FULL
    return _cannot_be_read(error) if is_read else _cannot_be_written(error)


def _cannot_be_read(error: OSError) -> int:
    """Say that an input is closed to us."""
    from ringwright.ground.errors import InputError

    reason = os.strerror(error.errno or 0).lower()
    told = InputError(f"{error.filename} cannot be read: {reason}", remedy=f"ls -l {shlex.quote(str(error.filename))}")
    _say(str(told))
    return InputError.exit_code


def _cannot_be_written(error: OSError) -> int:
    """Say that an output takes no more, or stands where nothing can be written."""
    from ringwright.ground.errors import OutputError

    _silence()
    where = error.filename or "standard output"
    reason = os.strerror(error.errno or 0).lower()
    remedy = "free some space (df -h), or name a place that can be written"
    _say(str(OutputError(f"{where} cannot be written: {reason}", remedy=remedy)))
    return OutputError.exit_code


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM and a closed terminal end the command in order: what it holds on disk goes with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)


def _dispatch(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    application = app()
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word == "-" and before in _OUTPUTS for before, word in pairwise(own)):
        raise UsageError("an output is a file, - is none", remedy="name a file with -o")
    following = explain(application, own)
    words = [STDIN if word == "-" else word for word in arguments]  # a lone dash would be taken for an option
    try:
        answer = application(words or ["--help"], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        verb = next((word for word in arguments if word in VERBS), "")
        _say(f"{error}\n  try: {_next_to(verb, error)}")
        return EXIT_USAGE
    if following:
        print(f"\n{following}")
    return answer if isinstance(answer, int) else EXIT_GOOD


def _next_to(verb: str, error: Exception) -> str:
    """Return what to do about words that are not understood: of a second fabric, who takes several."""
    if type(error).__name__ == "RepeatArgumentError" and "--fabric" in str(error):
        return "a question for each fabric; ringwright provision takes several, ringwright sweep has an axis of them"
    return f"ringwright {verb}".rstrip() + " --help"


def _wants_json(arguments: list[str]) -> bool:
    """Whether a command was asked for an object; what follows ``--`` is another program's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own or "--json=true" in own


def _print_error(error: RingwrightError) -> None:
    """Print an error as the one object of a command that found nothing to print."""
    import json

    told = {"what": error.what, "where": error.where, "try": error.remedy}
    print(json.dumps({"schema": ERROR_SCHEMA, "exit_code": error.exit_code, "error": told}, indent=1))


def _say(text: str) -> None:
    """Say on stderr what went wrong; a command to try next begins with how this program was called."""
    print(f"{invocation.NAME}: {invocation.as_called(harmless(text))}", file=sys.stderr)


def harmless(text: str) -> str:
    """Return a message whose control characters cannot drive a terminal; what it quotes may come from anywhere."""
    from ringwright.reports.layout import printable

    return "\n".join(map(printable, text.split("\n")))


def _our_bug(error: Exception, arguments: list[str]) -> int:
    """Say what went wrong inside, and whose fault it is: ours, or that of a plug-in whose code it came through."""
    from ringwright.ground.plugins import blame

    if os.environ.get("RINGWRIGHT_DEBUG"):
        import traceback

        traceback.print_exception(error)
    command = f"RINGWRIGHT_DEBUG=1 {shlex.join(['ringwright', *arguments])}"
    if (plugin := blame(error)) is not None:
        failed = plugin.failed(error, command)
        _say(str(failed))
        return failed.exit_code
    cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    _say(f"this is a bug of ours: {cause}\n  try: {command}")
    return EXIT_OUR_BUG
