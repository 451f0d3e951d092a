from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ringwright.engines.job.flat import FlatJob

Int64: TypeAlias = npt.NDArray[np.int64]
Int32: TypeAlias = npt.NDArray[np.int32]
Float64: TypeAlias = npt.NDArray[np.float64]

def events(
    hop_starts: Int64,
    hops: Int32,
    next_starts: Int64,
    nexts: Int32,
    waits: Int32,
    size_bytes: Int64,
    delay: Int64,
    parent: Int32,
    hop: Int32,
    child: Int32,
    ps_per_byte: Float64,
    latency: Int64,
    whole: npt.NDArray[np.uint8],
    holds: npt.NDArray[np.uint8],
    change_resource: Int64,
    change_time: Int64,
    change_ps_per_byte: Float64,
    delay_resource: Int64,
    delay_time: Int64,
    delay_latency: Int64,
) -> tuple[Int64, Int64]: ...
def order(message: Int32, step: Int32, reads: Int64, writes: Int64, messages: int) -> tuple[Int64, Int32, Int32]: ...
def flows(
    hop_starts: Int64,
    hops: Int32,
    next_starts: Int64,
    nexts: Int32,
    waits: Int32,
    size_bytes: Int64,
    delay: Int64,
    ps_per_byte: Float64,
    latency: Int64,
    whole: npt.NDArray[np.uint8],
    holds: npt.NDArray[np.uint8],
    change_resource: Int64,
    change_time: Int64,
    change_ps_per_byte: Float64,
    delay_resource: Int64,
    delay_time: Int64,
    delay_latency: Int64,
    owner: Int32,
    starts: Int64,
    ways: Int32,
) -> tuple[Int64, Int64]: ...
def fair_rates(starts: Int64, ways: Int32, capacity: Int64) -> Int64: ...
def job(flat: FlatJob) -> tuple[Int64, Int64, Int64, Int64, int]: ...
def merged(
    ready: Float64,
    tail: Float64,
    size: Float64,
    slice_bytes: float,
    alpha: float,
    beta: float,
    states: int,
    rounds: int,
    search: int,
) -> Int64: ...
