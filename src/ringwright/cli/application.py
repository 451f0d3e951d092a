"""The application behind the command line: verbs in their groups, each with help that ends in commands to try."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING

from ringwright.cli import recording_options
from ringwright.cli.verbs import GROUPS, VERBS
from ringwright.ground import invocation, laboratory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cyclopts import App

_LISTED = {"systems": "every_knob", "export": "every_export", "convert": "every_format"}
_HELP = {"--help", "-h"}
_HEADING = "Examples\n--------\n"
EVERYWHERE = "Every verb: -q no progress, -v progress in pipes, --json; VERB --help: examples."


def app() -> App:
    """Return the command line application; a verb's module is imported when the verb is called."""
    from cyclopts import App, Group, Parameter

    from ringwright import __version__

    application = App(
        name=invocation.NAME,
        help=invocation.as_called("See what your collectives did. First steps: ringwright summary --sample"),
        version=__version__,
        help_format="plaintext",
        help_epilogue=invocation.as_called(EVERYWHERE),
        result_action="return_value",
        default_parameter=Parameter(negative=""),
    )
    for place, (title, verbs) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=place)
        for order, (verb, sentence) in enumerate(verbs.items()):
            application.command(_listed(verb), name=verb, help=sentence, group=group, sort_key=order)
    application.command(
        "ringwright.cli.completion:completion",
        name="--completion",
        help="Completion for bash, zsh or fish, as a script.",
    )
    application["--help"].show = False  # who reads this has asked for it; the line is a verb's
    application["--version"].show = False  # everybody knows it
    return application


def explain(application: App, arguments: Sequence[str]) -> str:
    """Let the help of a verb end with what lies in folders and plug-ins, and return the examples that follow it.

    No other help reads the folders. The examples are not the application's to print: it would break their lines.
    """
    verb = next((word for word in arguments if word in VERBS), "")
    if not verb or not _HELP & {*arguments} or not _is_there(verb):
        return ""
    module = import_module(_where(verb).partition(":")[0])
    listed = getattr(module, _LISTED[verb])() if verb in _LISTED else ""
    application[verb].help_epilogue = "\n".join(
        filter(None, (listed, recording_options.HELP if verb in recording_options.READING else ""))
    )
    return invocation.as_called("\n".join(["Examples", *(f"  {line}" for line in examples(verb))]))


def examples(verb: str) -> list[str]:
    """Return the commands that a verb's docstring gives as examples; each runs as it stands."""
    text = inspect.getdoc(getattr(import_module(_where(verb).partition(":")[0]), verb)) or ""
    return [line.strip() for line in text.partition(_HEADING)[2].splitlines() if line.strip()]


def _where(verb: str) -> str:
    package = f"{laboratory.PACKAGE}.cli" if verb in laboratory.VERBS else "ringwright.cli"
    return f"{package}.{verb}:{verb}"


def _is_there(verb: str) -> bool:
    return verb not in laboratory.VERBS or laboratory.is_there()


def _listed(verb: str) -> str | Callable[..., None]:
    """Return where a verb's function is; of a verb that is not installed, what says how to install it."""
    if _is_there(verb):
        return _where(verb)
    from ringwright.cli.missing_package import absent

    return absent(verb)
