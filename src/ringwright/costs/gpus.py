"""What a GPU computes and moves: published peaks, and a roofline that times a matrix product by its shape.

Peaks are dense figures of the vendors' data sheets. The roofline counts whole waves of output tiles on the compute units; one
efficiency per generation, the share of the peak that a large product reaches, is what a fit may change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ringwright.ground.errors import UsageError

TILES = (
    (256, 128, 1.0),
    (128, 128, 0.93),
    (64, 128, 0.78),
    (64, 64, 0.6),
)  # rows, columns, share of the best tile's rate
SMALLEST_SPLIT = 1024  # numbers of the inner dimension that one part of a split product keeps


@dataclass(frozen=True)
class Gpu:
    """A device: operations/s by element type, bytes/s of its memory, compute units, and what share of each is reached.

    ``capacity_bytes`` is what its memory holds.

    ``launch_s`` is what a kernel costs besides; ``issue_s`` what the host needs to issue one, which small kernels wait for
    (0: never); ``flash`` whether attention keeps its scores on chip; ``attention`` is its share of the peak then.
    """

    name: str
    peak: dict[str, float] = field(repr=False)
    memory: float = 2e12
    units: int = 108
    efficiency: float = 0.75
    memory_efficiency: float = 0.8
    attention: float = 0.45
    launch_s: float = 4e-6
    issue_s: float = 0.0
    flash: bool = True
    provenance: str = ""
    capacity_bytes: float = 0.0

    def rate(self, dtype: str) -> float:
        """Return operations/s for an element type; UsageError where the device has no peak for it."""
        if dtype not in self.peak:
            raise UsageError(f"{self.name} has no {dtype}", remedy=f"one of: {', '.join(self.peak)}")
        return self.peak[dtype]

    def gemm(self, m: int, n: int, k: int, times: int = 1, *, dtype: str = "bfloat16", width_bytes: int = 2) -> float:
        """Return seconds of ``times`` products (m x k)(k x n): whole waves of tiles, or the bytes moved where that is more."""
        rate = self.rate(dtype) * self.efficiency / self.units
        best = math.inf
        for rows, columns, share in TILES:
            tiles = -(-m // rows) * -(-n // columns) * times
            split = 1 if tiles >= self.units else min(self.units // tiles, max(1, k // SMALLEST_SPLIT))
            waves = -(-tiles * split // self.units)
            best = min(best, waves * 2 * rows * columns * (k / split) / (rate * share))
        moved = width_bytes * times * (m * k + k * n + m * n)
        return max(best, self.moving(moved)) + self.launch_s

    def moving(self, size_bytes: float) -> float:
        """Return the seconds that reading and writing ``size_bytes`` of device memory takes."""
        return size_bytes / (self.memory * self.memory_efficiency)

    def attending(self, flops: float, dtype: str) -> float:
        """Return seconds of attention that keeps its scores on chip."""
        return flops / (self.rate(dtype) * self.attention) + self.launch_s


T = 1e12


def _peaks(single: float, half: float, eight: float = 0.0, four: float = 0.0) -> dict[str, float]:
    """Return operations/s by element type from TFLOP/s; what a device has not is left out."""
    blocks = eight if four else 0.0  # products with scales of blocks came with those of 4 bits
    listed = {"float32": single, "float16": half, "bfloat16": half, "fp8": eight, "mxfp8": blocks, "fp4": four}
    return {name: tera * T for name, tera in listed.items() if tera}


_V100, _A100, _H100 = _peaks(15.7, 125), _peaks(156, 312), _peaks(494.5, 989.4, 1978.9)
_LIST = (
    Gpu("v100", _V100, 0.9e12, 80, flash=False, provenance="NVIDIA V100 data sheet"),
    Gpu("a100-40g", _A100, 1.555e12, 108, provenance="NVIDIA A100 data sheet"),
    Gpu("a100", _A100, 2.039e12, 108, provenance="NVIDIA A100 80GB data sheet"),
    Gpu("h100", _H100, 3.35e12, 132, 0.72, provenance="NVIDIA H100 SXM data sheet"),
    Gpu("h800", _H100, 3.35e12, 132, 0.72, provenance="NVIDIA H800: H100 with narrower NVLink"),
    Gpu("h200", _H100, 4.8e12, 132, 0.72, provenance="NVIDIA H200 data sheet"),
    Gpu(
        "b200",
        _peaks(1125, 2250, 4500, 9000),
        8e12,
        148,
        0.7,
        provenance="NVIDIA DGX B200 data sheet",
        capacity_bytes=180e9,
    ),
    Gpu(
        "gb200",
        _peaks(1250, 2500, 5000, 10000),
        8e12,
        152,
        0.7,
        provenance="NVIDIA GB200 NVL72 data sheet",
        capacity_bytes=186e9,
    ),
    Gpu(
        "b300",
        _peaks(1125, 2250, 4500, 14000),
        8e12,
        148,
        0.7,
        provenance="NVIDIA DGX B300 data sheet",
        capacity_bytes=288e9,
    ),
    Gpu(
        "gb300",
        _peaks(1250, 2500, 5000, 15000),
        8e12,
        152,
        0.7,
        provenance="NVIDIA GB300 NVL72 data sheet",
        capacity_bytes=288e9,
    ),
    Gpu("mi250", _peaks(90.5, 362), 3.2e12, 208, provenance="AMD MI250 data sheet"),
    Gpu(
        "mi300x", _peaks(653.7, 1307, 2614), 5.3e12, 304, 0.55, provenance="AMD MI300X data sheet", capacity_bytes=192e9
    ),
)
# GB of memory of each, of the same data sheets; 80 of the others.
_GB = {
    "v100": 32,
    "a100-40g": 40,
    "h200": 141,
    "b200": 180,
    "gb200": 186,
    "b300": 288,
    "gb300": 288,
    "mi250": 128,
    "mi300x": 192,
}
GPUS = {gpu.name: replace(gpu, capacity_bytes=_GB.get(gpu.name, 80) * 1e9) for gpu in _LIST}
# Device of each fabric family, where a fabric is named and a device is not.
OF_FABRIC = {
    "dgx-1": "v100",
    "dgx-2": "v100",
    "ndv2": "v100",
    "dgx-a100": "a100",
    "p4d": "a100-40g",
    "polaris": "a100-40g",
    "dgx-h100": "h100",
    "dgx-b200": "b200",
    "gb200-nvl72": "gb200",
    "mi250": "mi250",
    "mi300": "mi300x",
}
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "float8": "fp8", "nvfp4": "fp4"}
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1, "mxfp8": 1, "fp4": 1}


def gpu(name: str, **changed: float) -> Gpu:
    """Return a device by name, some of its figures changed; UsageError for one that is not known."""
    known = GPUS.get(name.lower())
    if known is None:
        raise UsageError(f"'{name}' is no device known here", remedy=f"ringwright list gpus; one of: {', '.join(GPUS)}")
    return replace(known, **changed)  # type: ignore[arg-type]


def element_type(name: str) -> str:
    """Return the element type by its usual name (bf16, fp8 ...); UsageError for one that does not exist."""
    dtype = DTYPES.get(name.lower(), name.lower())
    if dtype not in WIDTHS:
        raise UsageError(f"'{name}' is no element type", remedy=f"one of: {', '.join([*WIDTHS, *DTYPES])}")
    return dtype
