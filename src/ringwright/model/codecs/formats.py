"""Any number format by its name: what a node gives for the contributions of its workers, and what a number takes on the wire.

The folder listing is the registry: a file here is a format if it has a function of its own name, and entry points of
``ringwright.model.codecs`` add those of other distributions. Beside the function stand, as constants of its module::

    OPS = ("sum",)                            # what it adds by, of sum, prod, min and max
    CARRIES = ("float16", "float32")          # types that it carries; none: every type
    ADDED_AS = "int32"                        # the type in which a node adds it; none: the collective's own
    SWITCHES = ("tofino",)                    # switches that can add it, words of the knob ``switches`` of fabrics
    TOLERANCE = 1e-6                          # error over result, as rms, of normal float32 numbers of 2 to 8 workers at the most
    WHOLE_NUMBERS = True                      # sums go from node to node as they are, in any order; else they leave as floats
    OF_PROGRAMS = ("scale",)                  # knobs that a program may fix by knobs of its own

    def wire_bytes(item_bytes, packet=256):   # bytes of a number to the node and back; takes what it needs of these and its knobs
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ringwright.ground import plugins
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.plugins import Plugin, origin_of
from ringwright.model.codecs import native
from ringwright.model.codecs.contributions import NodeSum, stacked

_NO_FORMATS = ("__init__", "adding_nodes", "contributions", "deviation", "formats")
USUAL = "native"


@dataclass(frozen=True)
class Codec:
    """A number format: the function that adds it, and what stands beside that; ``plugin`` where another distribution adds it."""

    name: str
    call: Callable[..., NodeSum]
    plugin: Plugin | None = None

    def told(self, name: str, default: Any = ()) -> Any:
        """Return what is said under a name: on the function, else in its module; ``default`` where nowhere."""
        call = inspect.unwrap(self.call)
        home = sys.modules.get(getattr(call, "__module__", ""))
        return getattr(call, name, getattr(home, name, default))

    @property
    def origin(self) -> str:
        """Who adds it: ``house``, or the name of the distribution."""
        return origin_of(self.plugin)

    @property
    def ops(self) -> tuple[str, ...]:
        """Operations that it survives."""
        return tuple(self.told("OPS"))

    @property
    def carries(self) -> tuple[str, ...]:
        """Types that it carries; none: every type."""
        return tuple(self.told("CARRIES"))

    @property
    def added_as(self) -> str:
        """The type in which a node adds it; empty: the collective's own."""
        return str(self.told("ADDED_AS", ""))

    @property
    def switches(self) -> tuple[str, ...]:
        """Switches that can add it: words of the knob ``switches`` of fabrics."""
        return tuple(self.told("SWITCHES"))

    @property
    def tolerance(self) -> float | None:
        """Error over result, as rms, that sums of 2 to 8 workers' normal numbers have at the most; None: it does not say."""
        said = self.told("TOLERANCE", None)
        return None if said is None else float(said)

    @property
    def whole_numbers(self) -> bool:
        """Whether sums are whole numbers, which go from node to node as they are; else they leave a node as floats."""
        return bool(self.told("WHOLE_NUMBERS", False))

    @property
    def of_programs(self) -> tuple[str, ...]:
        """Knobs that a program may fix by knobs of its own."""
        return tuple(self.told("OF_PROGRAMS"))

    def wire_bytes(self, item_bytes: int = 4, **knobs: int | str) -> tuple[float, float]:
        """Return bytes of a number to the node and back, with its share of what a packet says once.

        Raises UsageError where the format does not say it.
        """
        call = self.told("wire_bytes", None)
        if not callable(call):
            raise UsageError(
                f"{self.name} does not say its bytes on the wire", remedy="a function wire_bytes beside it"
            )
        asked = {"item_bytes": item_bytes} | knobs
        takes = inspect.signature(call).parameters
        to, back = call(**{name: value for name, value in asked.items() if name in takes})
        return float(to), float(back)

    def width_knobs(self) -> tuple[str, ...]:
        """Return the knobs, but the packet, on which its bytes on the wire depend."""
        call = self.told("wire_bytes", None)
        takes = inspect.signature(call).parameters if callable(call) else ()
        return tuple(name for name in takes if name not in ("item_bytes", "packet"))


def _listed() -> dict[str, Codec]:
    """Return the formats of this folder by name, native first."""
    files = (path.stem for path in Path(__file__).parent.glob("*.py"))
    stems = sorted((stem for stem in files if stem not in _NO_FORMATS), key=lambda stem: (stem != USUAL, stem))
    return {_name(stem): Codec(_name(stem), _function(stem)) for stem in stems}


def _name(stem: str) -> str:
    return stem.replace("_", "-")


def _function(stem: str) -> Callable[..., NodeSum]:
    function: Callable[..., NodeSum] = getattr(import_module(f"ringwright.model.codecs.{stem}"), stem)
    return function


HOUSE = _listed()
FORMATS: dict[str, Callable[..., NodeSum]] = {name: codec.call for name, codec in HOUSE.items()}
_tried: dict[str, Codec] = {}  # by ``trying``


def codecs() -> dict[str, Codec]:
    """Return every format by name, those of other distributions last; those that cannot be used are left out (``problems``)."""
    outside = (each for each in plugins.points("codecs", HOUSE) if _problem(each) is None)
    return {**HOUSE, **{each.name: _outsider(each) for each in outside}, **_tried}


def _outsider(plugin: Plugin) -> Codec:
    codec = Codec(plugin.name, plugin.call(), plugin)
    if lacking := [name for name in ("OPS", "wire_bytes") if not codec.told(name, None)]:
        raise plugin.error(f"nothing is called {lacking[0]} beside it")
    return codec


def _problem(plugin: Plugin) -> PluginError | None:
    return plugin.problem(lambda: _outsider(plugin))


def problems() -> list[PluginError]:
    """Return why formats of others cannot be used."""
    listed = plugins.points("codecs", HOUSE)
    return [error for plugin in listed if (error := _problem(plugin)) is not None]


def codec_of(name: str) -> Codec:
    """Return the format of that name; UsageError with the names there are."""
    known = codecs()
    if name not in known:
        raise UsageError(f"'{name}' is no number format that is known", remedy=f"one of: {', '.join(known)}")
    return known[name]


@contextmanager
def trying(codec: Codec) -> Iterator[Codec]:
    """Have a format be known by its name for as long as the block lasts, as a contract needs one that nobody has installed."""
    before = dict(_tried)
    _tried[codec.name] = codec
    try:
        yield codec
    finally:
        _tried.clear()
        _tried.update(before)


def added_by(switches: str) -> tuple[str, ...]:
    """Return the names of the formats that switches can add, by the word of the knob ``switches`` of fabrics; native first."""
    able = [name for name, codec in codecs().items() if switches in codec.switches]
    return tuple(sorted(able, key=lambda name: (name != USUAL, name)))


def added(
    codec: str, contributions: np.ndarray, order: Sequence[int] | None = None, *, op: str = "sum", **knobs: Any
) -> NodeSum:
    """Return what a node gives for contributions of shape (workers, elements): their dtype, shape (elements,).

    Parameters
    ----------
    codec
        A number format, by name.
    contributions
        float16 or float32; whole numbers need no format and are added as they are, whatever ``codec`` says.
    order
        The workers in the order in which their packets arrive; None: as given. Formats of whole numbers take no notice.
    op
        sum, min, max or prod, where the format has it.
    knobs
        Of the format: ``packet``, ``variant``, ``bits`` and so on.

    Raises
    ------
    UsageError
        An unknown format or knob, a dtype or an operation that it does not carry.
    """
    call = codec_of(codec).call
    takes = inspect.signature(call).parameters
    if strange := [name for name in knobs if name not in takes]:
        raise UsageError(f"{codec} has no knob '{strange[0]}'", remedy=f"one of: {', '.join([*takes][1:])}")
    if np.issubdtype(stacked(contributions).dtype, np.integer):
        return native.native(contributions, op=op, order=order)
    if op != "sum" and "op" not in takes:
        raise UsageError(f"numbers in {codec} have no {op}", remedy="op=sum, or codec native")
    asked = {"op": op, "order": order} | knobs
    return call(contributions, **{name: value for name, value in asked.items() if name in takes})


def wire_bytes(codec: str, item_bytes: int = 4, **knobs: int | str) -> tuple[float, float]:
    """Return bytes of a number on the wire to the node and back, its share of what a packet says once included.

    ``item_bytes`` is that of the collective's type; ``knobs`` are those of the format that matter here: packet,
    element, bits, register_bits. Raises UsageError for an unknown format.
    """
    return codec_of(codec).wire_bytes(item_bytes, **knobs)


def number_bytes(codec: str, item_bytes: int = 4, **knobs: int | str) -> tuple[float, float]:
    """Return bytes of a number alone on the wire to the node and back, without what a packet says once."""
    return wire_bytes(codec, item_bytes, **(knobs | {"packet": 1 << 62}))


def numbers_in(codec: str, payload_bytes: int, item_bytes: int = 4, **knobs: int | str) -> int:
    """Return how many numbers a packet of so many bytes holds, one at the least, where it says nothing else."""
    each, _ = number_bytes(codec, item_bytes, **knobs)
    return max(1, int(payload_bytes // each))
