"""The command line: one file per verb, loaded when called; errors in three parts, exit codes as documented."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING

from ringwright.errors import EXIT_GOOD, EXIT_INPUT, EXIT_OUR_BUG, EXIT_USAGE, RingwrightError, UsageError

if TYPE_CHECKING:
    from cyclopts import App

VERBS = {
    "summary": "One screen: operations, sizes, communicators, findings.",
    "report": "One self-contained HTML page.",
    "diff": "What changed between two runs.",
    "check": "A gate for CI: thresholds per operation and size class.",
    "convert": "Parquet, CSV or JSON lines; redacted on demand.",
    "query": "SQL over the tables.",
    "read": "Which kind of recording is this?",
    "run": "Record a job: run -- torchrun train.py, nothing changed.",
    "live": "A running job: its growing files, refreshed in place.",
    "doctor": "Why do I see nothing? Settings, files, remedies.",
    "plugin": "Record a job: the NCCL profiler plug-in, built here.",
    "bench": "Collectives on real ranks, beside the libraries' own.",
    "sweep": "Real models in every parallel form, recorded and compared.",
    "compare": "A benchmark beside its simulation, error by error.",
    "workload": "What a model makes its ranks say, before it runs.",
    "simulate": "How long a collective takes on a fabric, with faults.",
    "bound": "What no algorithm can beat, and the cut that proves it.",
    "library": "What a library would choose, size by size.",
    "calibrate": "Link numbers of a system from nccl-tests tables.",
    "systems": "Every algorithm and library, and what it has shown.",
    "survey": "The survey's 45 systems, and what each does for a job.",
    "reproduce": "Is the paper right? Its claim beside what we measure.",
    "export": "Algorithms, rules and fabrics as files of other systems.",
    "lab": "Real ranks on a network of namespaces, with faults.",
    "verify": "Is this MSCCL XML or MSCCL++ JSON program legal?",
}
STDIN = "<stdin>"
_LISTED = {"systems": "every_knob", "export": "every_export", "convert": "every_format"}
_OUTPUTS = ("-o", "--output", "--out", "--trace")
ERROR_SCHEMA = "ringwright.error/1"  # what --json prints where nothing could be read
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; ``arguments`` default to those of the process."""
    given = sys.argv[1:] if arguments is None else arguments
    code = EXIT_GOOD
    try:
        with _terminable(), _closed_pipe_as_one_error():
            code = _dispatch(given)
            sys.stdout.flush()
    except RingwrightError as error:
        if error.exit_code == EXIT_INPUT and _wants_json(given):
            _print_error(error)
        print(f"ringwright: {harmless(str(error))}", file=sys.stderr)
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
    from ringwright import drafts

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
    from ringwright.errors import InputError

    reason = os.strerror(error.errno or 0).lower()
    told = InputError(f"{error.filename} cannot be read: {reason}", remedy=f"ls -l {shlex.quote(str(error.filename))}")
    print(f"ringwright: {harmless(str(told))}", file=sys.stderr)
    return InputError.exit_code


def _cannot_be_written(error: OSError) -> int:
    """Say that an output takes no more, or stands where nothing can be written."""
    from ringwright.errors import OutputError

    _silence()
    place = error.filename or "standard output"
    reason = os.strerror(error.errno or 0).lower()
    remedy = "free some space (df -h), or name a place that can be written"
    print(f"ringwright: {OutputError(f'{place} cannot be written: {reason}', remedy=remedy)}", file=sys.stderr)
    return OutputError.exit_code


def app() -> App:
    """Return the command line application; a verb's module is imported when the verb is called."""
    from cyclopts import App, Parameter

    from ringwright import __version__

    application = App(
        name="ringwright",
        help="See what your collectives did.",
        version=__version__,
        help_format="plaintext",
        help_epilogue="First steps: ringwright summary --sample",
        result_action="return_value",
        default_parameter=Parameter(negative=""),
    )
    for order, (verb, sentence) in enumerate(VERBS.items()):
        application.command(f"ringwright.cli.{verb}:{verb}", name=verb, help=sentence, sort_key=order)
    return application


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


def _list_knobs(application: App, arguments: list[str]) -> None:
    """Let the help of a verb end with what lies in folders and plug-ins: knobs, exports, formats; no other help reads them."""
    verb = arguments[0] if arguments else ""
    if verb in _LISTED and {"--help", "-h"} & set(arguments):
        told: str = getattr(import_module(f"ringwright.cli.{verb}"), _LISTED[verb])()
        application[verb].help_epilogue = told


def _dispatch(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    application = app()
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word == "-" and before in _OUTPUTS for before, word in pairwise(own)):
        raise UsageError("an output is a file, - is none", remedy="name a file with -o")
    _list_knobs(application, own)
    words = [STDIN if word == "-" else word for word in arguments]  # a lone dash would be taken for an option
    try:
        answer = application(words or ["--help"], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        verb = next((word for word in arguments if word in VERBS), "")
        print(f"ringwright: {harmless(str(error))}\n  try: {f'ringwright {verb}'.rstrip()} --help", file=sys.stderr)
        return EXIT_USAGE
    return answer if isinstance(answer, int) else EXIT_GOOD


def _wants_json(arguments: list[str]) -> bool:
    """Whether a command was asked for an object; what follows ``--`` is another program's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own or "--json=true" in own


def _print_error(error: RingwrightError) -> None:
    """Print an error as the one object of a command that found nothing to print."""
    import json

    told = {"what": error.what, "where": error.where, "try": error.remedy}
    print(json.dumps({"schema": ERROR_SCHEMA, "exit_code": error.exit_code, "error": told}, indent=1))


def harmless(text: str) -> str:
    """Return a message whose control characters cannot drive a terminal; what it quotes may come from anywhere."""
    from ringwright.reports.layout import printable

    return "\n".join(map(printable, text.split("\n")))


def _our_bug(error: Exception, arguments: list[str]) -> int:
    """Say what went wrong inside, and whose fault it is: ours, or that of a plug-in whose code it came through."""
    from ringwright.plugins import blame

    if os.environ.get("RINGWRIGHT_DEBUG"):
        import traceback

        traceback.print_exception(error)
    command = f"RINGWRIGHT_DEBUG=1 {shlex.join(['ringwright', *arguments])}"
    if (plugin := blame(error)) is not None:
        failed = plugin.failed(error, command)
        print(f"ringwright: {harmless(str(failed))}", file=sys.stderr)
        return failed.exit_code
    cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    told = f"ringwright: this is a bug of ours: {cause}\n  try: {command}"
    print(harmless(told), file=sys.stderr)
    return EXIT_OUR_BUG
