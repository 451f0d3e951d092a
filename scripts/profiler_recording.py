"""A small recording of the NCCL profiler plug-in, made from its layouts, and damage to it behind check sums that are right."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import numpy as np

_HEADER = struct.Struct("<10sHIIIIII4xqq")
_BLOCK = struct.Struct("<4sIIIQqqQQII")
_WALL_NS = 1_700_000_000 * 10**9
_PER_BLOCK = 40


def recording(operations: int = 25) -> bytes:
    """Return the file of one rank of two with collectives, sends, copy-engine collectives, their kernels, proxies and ends."""
    from ringwright.formats.sources.nccl_profiler import records

    made = [_row(records.COMM, context=1, rank=0, hash=77, ns=10, nranks=2, nnodes=1, version=5, name=b"world")]
    made.append(_row(records.THREAD, thread=7, ns=11))
    for number in range(operations):
        made += _operation(number)
    blocks = [_block(b"".join(made[at : at + _PER_BLOCK]), at) for at in range(0, len(made), _PER_BLOCK)]
    text = b"host=n1\nprogram=train\nnccl=22703\nevents=127\n"
    head = _HEADER.pack(
        records.MAGIC,
        records.VERSION,
        records.HEADER_BYTES,
        7,
        64,
        records.STATUS_AT,
        len(records.WAITS),
        0,
        0,
        _WALL_NS,
    )
    head = (head.ljust(64, b"\0") + text).ljust(records.STATUS_AT, b"\0")
    status = struct.pack(
        "<IQQQQQQQQqqII", 1, len(blocks), sum(map(len, blocks)), *[0] * 6, 10**9, _WALL_NS + 10**9, 0, 0
    )
    return (head + struct.pack("<I", zlib.crc32(status)) + status).ljust(records.HEADER_BYTES, b"\0") + b"".join(blocks)


def _operation(number: int) -> list[bytes]:
    from ringwright.formats.sources.nccl_profiler import records as r

    own, at_ns = 100 + 10 * number, 1000 * (number + 1)
    names: dict[str, Any] = {"func": b"AllReduce", "datatype": b"ncclFloat32"}
    start: dict[str, Any] = {"context": 1, "rank": 0, "id": own, "parent": own - 1, "ns": at_ns}
    api = _row(r.COLL_API, **start | {"id": own - 1, "parent": 0}, count=1024, stream=5, root=0, **names)
    op = _row(
        r.COLL, **start, seq=number, count=1024, root=0, channels=1, warps=8, **names, algo=b"RING", proto=b"LL128"
    )
    if number % 5 == 3:
        api = _row(r.P2P_API, **start | {"id": own - 1, "parent": 0}, count=64, stream=5, **names | {"func": b"Send"})
        op = _row(r.P2P, **start, count=64, peer=1, channels=1, **names | {"func": b"Send"})
    if number % 5 == 4:
        op = _row(r.CE, **start, seq=number, count=64, stream=5, batches=1, **names, sync=b"barrier")
    return [
        _row(r.GROUP, **start | {"id": own - 2}),
        api,
        op,
        _row(r.KERNEL, **start | {"id": own + 1, "parent": own}, gpu_ns=at_ns + 77),
        _row(
            r.PROXY,
            **start | {"id": own + 2, "parent": own},
            pid=7,
            peer=1,
            steps=2,
            chunk_bytes=512,
            is_send=number % 2,
        ),
        _row(
            r.STEP,
            **start | {"id": own + 3, "parent": own + 2},
            stop_ns=at_ns + 90,
            bytes=512,
            wait_ns=[1] * len(r.WAITS),
        ),
        _row(r.PROXY_STOP, id=own + 2, ns=at_ns + 95, bytes=1024, wait_ns=[2] * len(r.WAITS), steps=2),
        _row(r.KERNEL_STOP, id=own + 1, ns=at_ns + 100, gpu_ns=at_ns + 177),
        _row(r.STOP, id=own, ns=at_ns + 101),
        _row(r.STATE, id=own, ns=at_ns + 102, state=3),
    ]


def _row(kind: int, **fields: Any) -> bytes:
    from ringwright.formats.sources.nccl_profiler import records

    layout = records.LAYOUTS[kind]
    row = np.zeros(1, layout)
    for name, value in {"kind": kind, "words": layout.itemsize // 8, **fields}.items():
        row[name] = value
    return row.tobytes()


def _block(payload: bytes, number: int) -> bytes:
    return _sealed_head(payload, (0, number, number, _WALL_NS + number, 0, 0, 0)) + payload


def _sealed_head(payload: bytes, rest: tuple[int, ...]) -> bytes:
    from ringwright.formats.sources.nccl_profiler import records

    head = _BLOCK.pack(records.BLOCK_MAGIC, len(payload), zlib.crc32(payload), *rest, 0)
    return head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))


def sealed_damage(data: bytes, draw: random.Random) -> bytes:
    """Return the file with records damaged and each block's check sums made right again."""
    from ringwright.formats.sources.nccl_profiler import records

    out, at = bytearray(data[: records.HEADER_BYTES]), records.HEADER_BYTES
    while at + _BLOCK.size <= len(data):
        magic, size, _, *rest, _ = _BLOCK.unpack_from(data, at)
        if magic != records.BLOCK_MAGIC:
            break
        payload = bytearray(data[at + _BLOCK.size : at + _BLOCK.size + size])
        for _ in range(draw.choice((0, 1, 1, 3, 20)) if payload else 0):
            if payload:  # a hit may have taken all of it out
                _hit(payload, draw)
        out += _sealed_head(bytes(payload), tuple(rest)) + payload
        at += _BLOCK.size + size
    return bytes(out)


def _hit(payload: bytearray, draw: random.Random) -> None:
    """Overwrite a word, a byte or a record of a block, or take some of it out."""
    at, how = draw.randrange(len(payload)), draw.randrange(5)
    if how == 0:
        payload[at] ^= 1 << draw.randrange(8)
    elif how <= 2:
        word = draw.choice((0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, draw.getrandbits(64)))
        payload[at & ~7 : (at & ~7) + 8] = struct.pack("<Q", word)[: len(payload) - (at & ~7)]
    elif how == 3:
        payload[at : at + 16] = draw.randbytes(len(payload[at : at + 16]))
    elif len(payload) > 64:
        del payload[at & ~7 : (at & ~7) + draw.choice((8, 32, 144))]
