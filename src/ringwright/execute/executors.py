"""Executors by name: one small file each in the folder ``offered``, with an ``EXECUTOR``. Its listing is the registry.

``memory`` and ``sockets`` need nothing; ``openmpi`` and ``mpich`` the extra ``mpi``; ``gloo`` and ``nccl`` PyTorch. Memory and
sockets are there on every rank, whoever started it. An entry point of ``ringwright.executors`` names an ``Executor`` of another
distribution: usually another way to start the ranks.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from ringwright.execute import offered
from ringwright.execute.executor import Executor
from ringwright.ground import plugins
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.plugins import Plugin

__all__ = ["EXECUTORS", "Executor", "executor", "executors"]
_STEMS = sorted(path.stem for path in Path(offered.__file__).parent.glob("*.py") if path.stem != "__init__")
EXECUTORS: dict[str, Executor] = {
    stem.replace("_", "-"): import_module(f"{offered.__name__}.{stem}").EXECUTOR for stem in _STEMS
}


def executors() -> dict[str, Executor]:
    """Return every executor by name, those of other distributions last; what cannot be used is left out (``problems``)."""
    outside = (each for each in plugins.points("executors", EXECUTORS) if _problem(each) is None)
    return {**EXECUTORS, **{each.name: _outsider(each) for each in outside}}


def executor(name: str) -> Executor:
    """Return the executor of that name; UsageError with the names there are."""
    if name not in (known := executors()):
        raise UsageError(f"no executor '{name}'", remedy=f"one of: {', '.join(known)}")
    return known[name]


def plugin_of(name: str) -> Plugin | None:
    """Return the plug-in that adds an executor; None for our own."""
    return next(
        (each for each in plugins.points("executors", EXECUTORS) if each.name == name and not each.refused), None
    )


def problems() -> list[PluginError]:
    """Return why executors of others cannot be used."""
    listed = plugins.points("executors", EXECUTORS)
    return [error for plugin in listed if (error := _problem(plugin)) is not None]


def _outsider(plugin: Plugin) -> Executor:
    loaded = plugin.load()
    if not isinstance(loaded, Executor):
        raise plugin.error(f"{plugin.value} is of type {type(loaded).__name__}, not an Executor")
    return replace(loaded, name=plugin.name)


def _problem(plugin: Plugin) -> PluginError | None:
    return plugin.problem(lambda: _outsider(plugin))
