"""What a model is made of, as far as its communication depends on it: blocks of layers, with the shapes of their parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """Parameters that are used together.

    ``shapes`` are in the order of registration (weight, bias). ``cut`` says how tensor parallelism cuts the weight:
    "columns" (outputs), "rows" (inputs), "vocabulary", or "" (every rank has all of it). Of whole samples, ``rows`` is how
    many of one (pixels, words) a matrix works on, ``keys`` how many each of these attends to before it, if there is attention.
    """

    name: str
    shapes: tuple[Shape, ...]
    cut: str = ""
    bias_first: bool = True  # whose gradient is ready first; a norm's weight comes before its bias
    expert: bool = False
    tied: bool = False  # used once more at the end of the model, as the matrix of the outputs
    frozen: int = 0  # how many of the shapes, from the first one on, get no gradient
    inputs_first: bool = False  # the matrix is stored as inputs x outputs
    rows: int = 1
    keys: int = 0

    @property
    def elements(self) -> int:
        """Elements of all its parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def cut_at(self) -> int:
        """Which dimension of its weight tensor parallelism cuts, where it does."""
        last = len(self.shapes[0]) - 1
        return last if (self.cut == "rows") != self.inputs_first else max(0, last - 1)

    def ready(self) -> tuple[Shape, ...]:
        """Return its trained shapes in the order in which gradients become ready."""
        trained = self.shapes[self.frozen :]
        return trained[::-1] if self.bias_first else trained


@dataclass(frozen=True)
class ModelBlock:
    """Layers in the order of registration; ``used`` names them in the order of their use, where that is another one.

    ``unit`` is "root" for what does not repeat and "block" for what is sharded, or placed in a stage, as a whole.
    """

    name: str
    layers: tuple[Layer, ...]
    used: tuple[str, ...] = ()
    unit: str = "block"
    moe: bool = False

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of all its parameters, in the order of registration."""
        return [shape for layer in self.layers for shape in layer.shapes]

    def in_use(self) -> list[Layer]:
        """Return its layers in the order of their use."""
        if not self.used:
            return list(self.layers)
        named = {layer.name: layer for layer in self.layers}
        return [named[name] for name in self.used]


@dataclass(frozen=True)
class Anatomy:
    """A model: its blocks in the order of registration and use, and its buffers as (bytes of an element, elements).

    Buffers of 4 bytes are floating-point numbers and follow the type of the parameters.
    """

    blocks: tuple[ModelBlock, ...]
    buffers: tuple[tuple[int, int], ...] = ()

    def layers(self) -> Iterator[Layer]:
        """Yield all layers in the order of registration."""
        for block in self.blocks:
            yield from block.layers

    def shapes(self) -> list[Shape]:
        """Return the shapes of all parameters in the order of registration."""
        return [shape for layer in self.layers() for shape in layer.shapes]

    def ready(self) -> list[Shape]:
        """Return the shapes in the order in which the gradients of a backward pass become ready.

        That is the order of use backwards, but a matrix that is used twice waits for its first use.
        """
        return [
            shape for block in reversed(self.blocks) for layer in reversed(block.in_use()) for shape in layer.ready()
        ]

    @property
    def elements(self) -> int:
        """Elements of all parameters."""
        return sum(math.prod(shape) for shape in self.shapes())


def linear(name: str, outputs: int, inputs: int, cut: str = "", *, bias: bool = False) -> Layer:
    """Return a matrix of ``outputs`` x ``inputs``, with a bias or without."""
    return Layer(name, ((outputs, inputs), (outputs,)) if bias else ((outputs, inputs),), cut)


def window(name: str, outputs: int, inputs: int, height: int, width: int | None = None, *, bias: bool = False) -> Layer:
    """Return a convolution with a window of ``height`` x ``width`` (square where no width is given)."""
    weight = (outputs, inputs, height, height if width is None else width)
    return Layer(name, (weight, (outputs,)) if bias else (weight,), bias_first=False)


def norm(name: str, width: int, *, bias: bool = False) -> Layer:
    """Return a normalisation: a scale, and a shift where there is a ``bias``."""
    return Layer(name, ((width,),) * (2 if bias else 1), bias_first=False)
