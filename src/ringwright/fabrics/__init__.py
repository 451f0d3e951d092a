"""Fabrics: one file per family of machines, each with one function of the same name that returns a Topology.

The folder listing is the registry; a family appears here by having a file, or by an entry point of ``ringwright.fabrics`` that
names such a function. ``fabric`` reads one line::

    fabric("switch:4096")
    fabric("torus:8x8,rate=50GiB/s,latency_s=0.5us")
    fabric("dgx-h100:16")                          # 16 boxes of 8
    fabric("leaf-spine:512,oversubscription=4", routing="ecmp", seed=7)

In: such a line, and faults. Out: a Topology. Start reading: `switch`, then `dgx_h100`; `faults`, what a line of a fault does.

What stands behind the colon counts ranks for plain networks and boxes for products; several sizes are joined by ``x``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from ringwright.costs.protocols import PROTOCOLS, transport_of
from ringwright.costs.transports import NETWORKS
from ringwright.fabrics._meanings import MEANINGS
from ringwright.ground import plugins
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.knobs import Choices, Knob, knobs_of, knobs_of_fields
from ringwright.ground.plugins import Plugin
from ringwright.ground.spellings import parse, unknown
from ringwright.model.topology import Topology

_NO_FAMILY = ("__init__", "faults")


def families() -> tuple[str, ...]:
    """Return the names of all families, those of other distributions last."""
    return (*_house(), *(plugin.name for plugin in plugins.points("fabrics", _house()) if not plugin.refused))


@cache
def _house() -> tuple[str, ...]:
    files = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return tuple(sorted(stem.replace("_", "-") for stem in files if stem not in _NO_FAMILY and stem[0] != "_"))


def plugin_of(name: str) -> Plugin | None:
    """Return the plug-in that adds a family; None for our own."""
    outside = plugins.points("fabrics", _house())
    return None if name in _house() else next((plugin for plugin in outside if plugin.name == name), None)


def family(name: str) -> Callable[..., Topology]:
    """Return the function of a family; raise UsageError where there is none of that name, PluginError for one that fails."""
    known = families()
    if (plugin := plugin_of(name)) is not None:
        build: Callable[..., Topology] = plugin.call()
        return build
    if name not in known:
        near = get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"no fabric is named '{name}'", remedy=f"ringwright list fabrics; {hint}one of: {', '.join(known)}"
        )
    slug = name.replace("-", "_")
    function: Callable[..., Topology] = getattr(import_module(f"{__name__}.{slug}"), slug)
    return function


def knobs(name: str) -> dict[str, Knob]:
    """Return the knobs of a family by name (default ``none``: worked out from the size)."""
    from ringwright.fabrics._network import Network

    build = family(name)
    plugin = plugin_of(name)
    all_knobs = plugin.knobs(MEANINGS) if plugin else knobs_of(build, lambda knob: MEANINGS.get(knob, ""))
    if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(build).parameters.values()):
        all_knobs |= knobs_of_fields(Network, lambda knob: MEANINGS.get(knob, ""))
    return all_knobs | knobs_of_fields(OfEveryFabric, lambda knob: MEANINGS.get(knob, ""))


@dataclass(frozen=True)
class OfEveryFabric:
    """Knobs that every family has."""

    transport: Annotated[str, Choices(tuple(dict.fromkeys((*NETWORKS, *PROTOCOLS))))] | None = None


def problems() -> list[PluginError]:
    """Return why families of others cannot be used: their names, or what they are."""
    listed = plugins.points("fabrics", _house())
    return [error for plugin in listed if (error := plugin.problem(plugin.knobs)) is not None]


def fabric(spec: str, **given: Any) -> Topology:
    """Return the machine that ``family:sizes,knob=value,...`` names.

    Parameters
    ----------
    spec
        ``dgx-h100:16`` (16 nodes of 8), ``switch:64,rate=50GB/s``, ``torus:8x8,latency_s=0.5us``: a family, its sizes, and knobs.
        Rates take units (``50GB/s``, ``400Gb/s``), times too (``0.5us``).
    given
        Further knobs, as values: bytes/s, seconds.

    Returns
    -------
    Topology
        Named as it was spelled.

    Raises
    ------
    UsageError
        No such family (it names near ones), no such knob, or a value that makes no sense.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.fabric("torus:4x4,rate=50GB/s")
    Topology(torus:4x4,rate=50GB/s: 16 ranks, 16 nodes, 64 links)
    """
    head, *options = spec.split(",")
    name, _, text = head.partition(":")
    name = name.strip()
    build, allowed = family(name), knobs(name)
    chosen = {**given}
    for option in options:
        key, equals, value = option.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UsageError(
                f"'{option}' in '{spec}' is no knob=value, as {name}:N,{next(iter(allowed), 'rate')}=... would be",
                remedy=f"ringwright systems {name}",
            )
        if key not in allowed:
            raise unknown(name, key, allowed, where=spec)
        chosen[key] = parse(name, allowed[key], value, where=spec)
    for key in given:
        if key not in allowed:
            raise unknown(name, key, allowed)
    transport = chosen.pop("transport", None)
    title = ",".join([spec, *(f"{key}={value}" for key, value in given.items())])
    try:
        return _carried(dataclasses.replace(_built(build(*_sizes(spec, text), **chosen), name), name=title), transport)
    except TypeError as error:
        needed = [each.name for each in inspect.signature(build).parameters.values() if each.name not in allowed]
        raise UsageError(f"'{spec}' cannot be built: {error}", remedy=f"{name}:{'x'.join(needed)}") from error


def _carried(made: Topology, spoken: str | None) -> Topology:
    """Return a fabric with the transport, or the protocol, that was asked for."""
    if spoken is None:
        return made
    if spoken not in (*NETWORKS, *PROTOCOLS):
        raise UsageError(f"'{spoken}' is no transport", remedy=f"one of: {', '.join((*NETWORKS, *PROTOCOLS))}")
    own = spoken if spoken in PROTOCOLS else ""
    return dataclasses.replace(made, transport=transport_of(spoken), protocol=own)


def _built(made: object, name: str) -> Topology:
    """Return what a family made; what one of others made has to be a Topology."""
    if isinstance(made, Topology):
        return made
    plugin = plugin_of(name)
    assert plugin is not None  # noqa: S101 - ours are typed
    raise plugin.error(f"it returned {type(made).__name__}, not a Topology")


def _sizes(spec: str, text: str) -> list[int]:
    parts = text.split("x") if text else []
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise UsageError(f"'{text}' in '{spec}' is no size", remedy="numbers joined by x, for example torus:8x8")
    return [int(part) for part in parts]
