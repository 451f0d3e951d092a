"""Bounds of all-gather of 1 GiB in all on the machines of the benchmarks, as the public tool for forests gives them."""

from __future__ import annotations

BOUNDS_US = {
    "ring8": 8750.0,
    "hypercube8": 5833.3,
    "dgx1": 6263.5,
    "dgxa100_unwound": 3131.7,
    "mesh3x3": 8888.9,
    "torus4x4": 4687.5,
    "hypercube16": 4687.5,
    "mesh4x4": 9375.0,
    "mi250x16": 3131.7,
    "torus8x8": 4921.9,
    "mesh8x8": 9843.8,
    "hypercube64": 3281.3,
    "dgx-a100:1": 3131.7,
    "dgx-a100:2": 3097.3,
    "ndv2x2": 42949.7,
    "dgx2x1": 8053.1,
    "dgx2x2": 8321.5,
}
