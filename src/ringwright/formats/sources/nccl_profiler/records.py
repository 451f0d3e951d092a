"""The layout of the plug-in's records, as NumPy sees them; the C side is ``capture/nccl_profiler/plugin.c``."""

from __future__ import annotations

from typing import Any

import numpy as np

MAGIC = b"RWNCCLPROF"
BLOCK_MAGIC = b"RWBK"
VERSION = 1
HEADER_BYTES = 4096
STATUS_AT = 2048
MOST_BLOCK_BYTES = 1 << 18
WAITS = ("before", "send-gpu", "send-peer", "send-network", "receive-network", "receive-flush", "receive-gpu")

_Fields = list[Any]
_START: _Fields = [
    *(("kind", "u1"), ("words", "u1"), ("context", "<u2"), ("rank", "<i4")),
    *(("id", "<u8"), ("parent", "<u8"), ("ns", "<i8")),
]
_NAMES: _Fields = [("func", "S16"), ("datatype", "S16")]
_API: _Fields = [
    *_START,
    ("count", "<u8"),
    ("stream", "<u8"),
    ("root", "<i4"),
    ("captured", "u1"),
    ("spare", "V3"),
    *_NAMES,
]
_PART: _Fields = [*_START, ("bytes", "<u8"), ("number", "<i4"), ("flag", "u1"), ("spare", "V3")]
_STOP: _Fields = [("kind", "u1"), ("words", "u1"), ("state", "<u2"), ("value", "<i4"), ("id", "<u8"), ("ns", "<i8")]

GROUP, COLL, P2P, PROXY, STEP, CTRL, KERNEL, NET, GROUP_API, COLL_API, P2P_API, LAUNCH, CE, CE_SYNC, CE_BATCH = range(
    1, 16
)
STOP, PROXY_STOP, KERNEL_STOP, STATE, COMM, THREAD = range(32, 38)

LAYOUTS: dict[int, np.dtype[Any]] = {
    kind: np.dtype(fields)
    for kind, fields in {
        GROUP: _START,
        COLL: [
            *_START,
            *(("seq", "<i8"), ("count", "<u8"), ("traffic", "<u8"), ("group", "<u8"), ("root", "<i4"), ("op", "<i4")),
            *(("channels", "u1"), ("warps", "u1"), ("spare", "V6"), *_NAMES, ("algo", "S24"), ("proto", "S8")),
        ],
        P2P: [
            *_START,
            *(("count", "<u8"), ("group", "<u8"), ("peer", "<i4"), ("channels", "u1"), ("spare", "V3"), *_NAMES),
        ],
        PROXY: [
            *_START,
            *(("pid", "<i4"), ("peer", "<i4"), ("steps", "<i4"), ("chunk_bytes", "<i4")),
            *(("channel", "u1"), ("is_send", "u1"), ("spare", "V6")),
        ],
        STEP: [
            *_START,
            *(
                ("stop_ns", "<i8"),
                ("bytes", "<u8"),
                ("wait_ns", "<i8", (len(WAITS),)),
                ("step", "<i4"),
                ("spare", "V4"),
            ),
        ],
        CTRL: _START,
        KERNEL: [*_START, ("gpu_ns", "<i8"), ("channel", "u1"), ("spare", "V7")],
        NET: [*_START, ("plugin", "<i8")],
        GROUP_API: _API,
        COLL_API: _API,
        P2P_API: _API,
        LAUNCH: [*_START, ("stream", "<u8")],
        CE: [
            *_START,
            *(("seq", "<i8"), ("count", "<u8"), ("stream", "<u8"), ("root", "<i4"), ("ce_seq", "<u4")),
            *(("batch_size", "<u4"), ("batches", "<u4"), ("intra_batch_sync", "u1"), ("spare", "V7")),
            *(*_NAMES, ("sync", "S16")),
        ],
        CE_SYNC: _PART,
        CE_BATCH: _PART,
        STOP: _STOP,
        PROXY_STOP: [*_STOP, *(("bytes", "<u8"), ("wait_ns", "<i8", (len(WAITS),)), ("steps", "<u4"), ("spare", "V4"))],
        KERNEL_STOP: [*_STOP, ("gpu_ns", "<i8")],
        STATE: _STOP,
        COMM: [
            *(("kind", "u1"), ("words", "u1"), ("context", "<u2"), ("rank", "<i4"), ("hash", "<u8"), ("ns", "<i8")),
            *(("nranks", "<i4"), ("nnodes", "<i4"), ("version", "u1"), ("spare", "V7"), ("name", "S64")),
        ],
        THREAD: [("kind", "u1"), ("words", "u1"), ("spare", "V2"), ("thread", "<u4"), ("ns", "<i8")],
    }.items()
}
MOST_NS = 1 << 61  # 73 years, of any clock
MOST_RANKS = 1 << 22
# The least and the most that a field can be; what lies beyond was not written by the plug-in. Others may hold anything.
RANGES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("ns", "gpu_ns", "stop_ns", "wait_ns"), (0, MOST_NS)),
    **dict.fromkeys(("count", "bytes", "traffic"), (0, 1 << 48)),
    **dict.fromkeys(("rank", "peer", "root"), (-1, MOST_RANKS - 1)),
    **dict.fromkeys(("nranks", "nnodes"), (-1, MOST_RANKS)),
    "seq": (0, 1 << 48),
}
KEPT = frozenset(
    (COLL, P2P, PROXY, STEP, KERNEL, COLL_API, P2P_API, CE, PROXY_STOP, KERNEL_STOP, COMM)
)  # the rest is counted
NAMES = {
    GROUP: "groups",
    COLL: "collectives",
    P2P: "sends and receives",
    PROXY: "proxy operations",
    STEP: "proxy steps",
    CTRL: "proxy control events",
    KERNEL: "kernel channels",
    NET: "network plug-in events",
    GROUP_API: "group calls",
    COLL_API: "collective calls",
    P2P_API: "send and receive calls",
    LAUNCH: "kernel launches",
    CE: "copy-engine collectives",
    CE_SYNC: "copy-engine synchronisations",
    CE_BATCH: "copy-engine batches",
    STOP: "ends",
    PROXY_STOP: "ends of proxy operations",
    KERNEL_STOP: "ends of kernel channels",
    STATE: "changes of state",
    COMM: "communicators",
    THREAD: "threads",
}
