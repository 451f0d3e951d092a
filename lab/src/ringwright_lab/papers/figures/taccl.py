"""TACCL's figures: gains over NCCL on two NDv2 boxes, and its own model's times beside those of the public tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringwright.algorithms.synthesis.taccl import taccl
from ringwright.engines.choose import simulate
from ringwright.formats.sources.topology.taccl import read_taccl_model
from ringwright.model.collective import Collective
from ringwright.model.sketches import Sketch
from ringwright_lab.papers.figures.collectives import time_us

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-gather", "all-to-all", "all-reduce")
SIZES = ("1K", "16K", "256K", "4M", "64M", "1G")
SK1 = Sketch(2, connections={0: (1,)}, symmetry=((8, 16),), name="sk1-ndv2-n2")
# Times of a chunk in us: 1 MiB as TACCL profiled it; 1 MB of TE-CCL's inputs (50, 25 and 12.5 GB/s, 0.7 and 1.3 us).
PROFILED = {"alpha": 0.3, "node_betas_list": [23, 46], "remote_alpha": 2.6, "remote_beta": 105}
OF_TECCL = {"alpha": 0.7, "node_betas_list": [20, 40], "remote_alpha": 1.3, "remote_beta": 80}


def largest_gain(algorithm: str = "taccl", baseline: str = "nccl-2-4:release=2.8") -> float:
    """Return the largest ratio of times over collectives and sizes on two NDv2 boxes."""
    return max(
        time_us(op, "ndv2:2", size, baseline) / time_us(op, "ndv2:2", size, algorithm) for op in OPS for size in SIZES
    )


def model_ratio(op: str, other_us: float, chunks: int) -> float:
    """Return the time of a collective of 1 MiB a block on two boxes as profiled, sketch sk1, over another one."""
    return _model_us(op, 16 << 20, PROFILED, 1 << 20, chunks) / other_us


def teccl_ratio(size_bytes: int, other_us: float) -> float:
    """Return the same for an all-gather on the boxes of TE-CCL's inputs, by the best number of chunks."""
    return min(_model_us("all-gather", size_bytes, OF_TECCL, 1_000_000, chunks) for chunks in (1, 2, 16)) / other_us


def machine_of(profile: Mapping[str, object], chunk_bytes: int) -> Topology:
    """Return two boxes joined as the sketch has it; ``profile``: the times of chunks of that many bytes, in us."""
    text = json.dumps({"name": "NDv2", "gpus_per_node": 8, "nics_per_node": 1, **profile})
    return read_taccl_model(text, "profile", SK1, chunk_bytes=chunk_bytes, scale=1.0)


def _model_us(op: str, size_bytes: int, profile: Mapping[str, object], chunk_bytes: int, chunks: int) -> float:
    machine = machine_of(profile, chunk_bytes)
    collective = Collective(op, range(16), size_bytes)
    program = taccl(collective, machine, sketch=SK1, chunks=chunks, effort=0.9, link_model="blocking")
    return simulate(program, machine, engine="events", alpha="busy").time_s * 1e6
