"""A public function that returns arrays tells their dtype and shape: a ratchet, and a look at what the nouns really return."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ringwright
from ringwright.program import explicit

PACKAGE = Path(str(ringwright.__file__)).parent
SILENT = 0  # functions that do not tell; this number may only fall
DTYPE = re.compile(r"\b(u?int(8|16|32|64)|float(16|32|64)|bool|dtypes?)\b")
SHAPE = re.compile(r"\b(shape|length)\b")

pytestmark = pytest.mark.once


def public_arrays() -> Iterator[tuple[str, str]]:
    """Yield (place, docstring) of every public function or property whose annotation says that arrays come back."""
    for module in sorted(PACKAGE.rglob("*.py")):
        parts = module.relative_to(PACKAGE).parts
        if any(part.startswith("_") and part != "__init__.py" for part in parts):
            continue
        yield from _inside(ast.parse(module.read_text()).body, "/".join(parts))


def _inside(body: list[ast.stmt], where: str) -> Iterator[tuple[str, str]]:
    for node in body:
        name = getattr(node, "name", "_")
        if name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from _inside(node.body, f"{where} {name}")
        elif isinstance(node, ast.FunctionDef) and node.returns and "ndarray" in ast.unparse(node.returns):
            yield f"{where}:{node.lineno} {name}", ast.get_docstring(node) or ""


def test_who_returns_arrays_tells_dtype_and_shape() -> None:
    every = list(public_arrays())
    assert len(every) > 80, "the annotations are looked for in the wrong place"
    silent = [place for place, text in every if not (DTYPE.search(text) and SHAPE.search(text))]
    assert len(silent) <= SILENT, silent
    assert len(silent) == SILENT, "fewer are silent: lower SILENT"


def test_the_nouns_return_what_they_tell() -> None:
    collective = ringwright.Collective("all-gather", range(16), 1 << 20)
    machine = ringwright.fabric("dgx-h100:2")
    program = ringwright.algorithm("ring")(collective, machine)
    src, dst = np.array([0, 3, 5]), np.array([9, 3, 6])
    starts, links = machine.routes(src, dst)
    block = explicit(0, [0, 1], [1, 2], [0, 0])  # type: ignore[arg-type]
    slots = np.arange(4)
    found = {
        "block_bytes": (collective.block_bytes, (16,)),
        "link_ids": (machine.link_ids(src, dst), src.shape),
        "starts": (starts, (4,)),
        "links": (links, (int(starts[-1]),)),
        "memberships": (machine.memberships[0], (machine.n_links + 1,)),
        "bytes_of": (program.layout.bytes_of(slots), slots.shape),
        "message_bytes": (program.layout.message_bytes(slots, 2), slots.shape),
        "arrays": (block.arrays()[0], (block.count,)),
    }
    assert {name: (each.dtype, each.shape) for name, (each, _) in found.items()} == {
        name: (np.dtype(np.int64), shape) for name, (_, shape) in found.items()
    }
