"""Model families, one file each: their sizes, and their parameters in closed form. The folder listing is the registry.

A file here, and a module or object that an entry point of ``ringwright.families`` names, has::

    SIZES = {"tiny-mlp": {"layers": 2, "hidden": 64, "positions": 128}}    # name people type -> dimensions
    ALIASES = {"mlp": "tiny-mlp"}                                          # other names of a size (may be left out)
    SEQUENCES = {"tiny-mlp": 64}    # tokens a sequence had in training, where "positions" would allow more (may be left out)
    IS_BUILT = True                 # a rank program of ours builds it, so that sweeps offer it (may be left out)

    def anatomy(dims: dict[str, int]) -> Anatomy: ...                       # its parameters, block by block
    def sides(dims: dict[str, int]) -> list[tuple[int, int]]: ...           # of images: pixels before and after convolutions
    def tokens(dims: dict[str, int]) -> int: ...                            # of images cut into patches, in place of sides
    def untrained(dims: dict[str, int]) -> int: ...                         # parameters without gradient, not in the anatomy
    REFUSED = {"pp": ("why it has no stages", "dp or fsdp")}                # parallel forms that it has not, and what it has
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ringwright.ground import plugins
from ringwright.ground.errors import PluginError
from ringwright.ground.plugins import Plugin


@cache
def of_house() -> dict[str, Any]:
    """Return our own families by name: those that a rank program builds first."""
    stems = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    modules = {stem.replace("_", "-"): import_module(f"{__name__}.{stem}") for stem in stems}
    return dict(sorted(modules.items(), key=lambda item: not getattr(item[1], "IS_BUILT", False)))


def of_others() -> dict[str, Any]:
    """Return the families of other distributions by name; what cannot be used is left out (``problems``)."""
    return {each.name: _module(each) for each in _points() if each.problem(partial(_module, each)) is None}


def problems() -> list[PluginError]:
    """Return why families of others cannot be used."""
    return [error for each in _points() if (error := each.problem(partial(_module, each))) is not None]


def family(name: str) -> Any:
    """Return a family by name; KeyError for none."""
    return of_house()[name] if name in of_house() else of_others()[name]


class Dimensions(dict[str, int]):
    """Dimensions of a model of others: one that our formulas ask for and that it has not is its error, told by name."""

    def __init__(self, plugin: Plugin, size: str, dims: dict[str, int]) -> None:
        super().__init__(dims)
        self.plugin, self.size = plugin, size

    def __missing__(self, name: str) -> int:
        raise self.plugin.error(f"'{self.size}' has no dimension '{name}', which the formulas ask for")


def dimensions(family: str, size: str, dims: dict[str, int]) -> dict[str, int]:
    """Return the dimensions of a model; those of others know whose they are."""
    if family in of_house():
        return dims
    return Dimensions(next(each for each in _points() if each.name == family), size, dims)


def _points() -> tuple[Plugin, ...]:
    return plugins.points("families", of_house())


def _module(plugin: Plugin) -> Any:
    """Return what a plug-in names, which must look like a family; PluginError with what it lacks."""
    target = plugin.load()
    sizes = getattr(target, "SIZES", None)
    if not callable(getattr(target, "anatomy", None)):
        raise plugin.error("it has no function anatomy(dims)")
    if not isinstance(sizes, dict) or not sizes or not all(map(_is_size, sizes.values())):
        raise plugin.error("its SIZES are not name -> dimension -> number")
    for name, dims in sizes.items():
        if "image" in dims and not any(callable(getattr(target, each, None)) for each in ("sides", "tokens")):
            raise plugin.error(f"'{name}' takes images, but it has neither sides(dims) nor tokens(dims)")
        if not {"image", "positions", "tables"} & set(dims) and name not in getattr(target, "SEQUENCES", {}):
            raise plugin.error(f"'{name}' has neither a dimension 'positions' nor a length in SEQUENCES")
    return target


def _is_size(dims: object) -> bool:
    return isinstance(dims, dict) and all(isinstance(value, int) for value in dims.values())
