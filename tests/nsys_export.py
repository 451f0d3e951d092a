"""A fabricated Nsight Systems export: the tables and columns of the real schema, made-up rows."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
 demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, gridX INTEGER NOT NULL,
 graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
 globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
 copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 streamId INTEGER NOT NULL, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
 color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
 int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER,
 jsonText TEXT, binaryData TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL,
 value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, busLocation TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
"""
NAMES = {
    1: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    2: "void gemm<float>(float*)",
    3: "gemm",
    4: "ncclAllReduce",
    5: "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    6: "ncclAllGather",
    7: "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    8: "void cross_device_reduce_1stage<c10::BFloat16, 8>",
}
START = 1_700_000_000_000_000_000


def write(
    path: Path, *, pid: int = 4242, shift_ns: int = 0, sizes: tuple[int, ...] = (1 << 20, 2 << 20), calls: int = 2
) -> Path:
    """Write an export of one process: two all-reduces, an all-gather, a send, a GEMM, a copy, a step."""
    with sqlite3.connect(path) as db:
        db.executescript(SCHEMA)
        process, thread = pid << 24, pid << 24 | 77
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 3, 'node7')")
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100 80GB HBM3', '0000:01:00')")
        db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (START + shift_ns,))
        kernels = [
            (1000, 6000, 20, 11, 1, 1),
            (2000, 3000, 7, 12, 2, 3),
            (9000, 12000, 20, 13, 1, 1),
            (13000, 14000, 20, 14, 5, 5),
        ]
        kernels += [(15000, 15500, 24, 15, 7, 7), (16000, 16100, 7, 16, 8, 8)]
        for start, end, stream, correlation, name, short in kernels:
            row = (start, end, 3, 1, None, stream, correlation, process, name, short, None, 0, 1, None)
            db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 14)})", row)
            api = (start - 500, start - 400, 0, thread, correlation, 3, 0, None)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)", api)
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 200, 3, 1, 7, 1, ?, 4096, 1)", (process,))
        nvtx = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId, uint64Value, jsonText) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        db.execute(nvtx, (0, None, 75, "NCCL", None, thread, 1, None, None))
        for place in range(calls):
            db.execute(
                nvtx, (410 + 100 * place, 460 + 100 * place, 59, None, 4, thread, 1, sizes[place % len(sizes)], None)
            )
        payload = '{"NCCL communicator ID": 77, "Message size [bytes]": 512}'
        db.execute(nvtx, (900, 950, 59, None, 6, thread, 1, None, payload))
        db.execute(nvtx, (0, 20000, 59, "ProfilerStep#12", None, thread, 0, None, None))
    db.close()
    return path


PAYLOADS = """
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER, flags INTEGER, numEntries INTEGER,
 payloadSize INTEGER, alignTo INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, flags INTEGER,
 type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER);
CREATE TABLE NVTX_PAYLOAD_ENUM_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, name TEXT,
 value INTEGER, isFlag INTEGER);
"""
COMM, SIZE, OP = "NCCL communicator ID", "Message size [bytes]", "Reduction operation"
REDUCTION = (1 << 24) + 11  # the schema of NCCL's reductions
# name -> number of the schema, its entries: (name, type, offset), how they are laid out
ENTRIES: dict[str, tuple[int, list[tuple[str, int, int]], str]] = {
    "init": (1 << 24, [(COMM, 18, 0), ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16)], "<Qiiixxxx"),
    "part": ((1 << 24) + 4, [(COMM, 18, 0), (SIZE, 22, 8)], "<QQ"),
    "reduced": ((1 << 24) + 5, [(COMM, 18, 0), (SIZE, 22, 8), (OP, REDUCTION, 16)], "<QQixxxx"),
    "peer": ((1 << 24) + 9, [(COMM, 18, 0), ("Bytes", 22, 8), ("Peer rank", 5, 16)], "<QQixxxx"),
}
WORLD, PAIR = 0xFEDCBA9876543210, 0x77


def blob(schema: str, *values: int) -> bytes:
    """Return the bytes of an event's payload: domain, schema, size, where it begins, and the structure."""
    number, _, layout = ENTRIES[schema]
    body = struct.pack(layout, *values)
    return struct.pack("<QQQQ", 1, number, len(body), 32) + body


def write_payloads(path: Path, *, rank: int = 0, as_text: bool = False) -> Path:
    """Write an export of one of four ranks whose ranges carry NCCL's structures: an all-reduce and a reduce-scatter launched in
    their calls, a send and a receive in one kernel of a group, a second all-reduce in a graph."""
    pid = 500 + rank
    process, thread = pid << 24, pid << 24 | 7
    with sqlite3.connect(path) as db:
        db.executescript(SCHEMA + PAYLOADS)
        names = {**NAMES, 9: "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)"}
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", names.items())
        for number, entries, layout in ENTRIES.values():
            row = (1, number, None, 1, None, len(entries), struct.calcsize(layout), None)
            db.execute("INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            db.executemany(
                "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (1, number, n, None, kind, name, None, None, at or None)
                    for n, (name, kind, at) in enumerate(entries)
                ],
            )
        db.executemany(
            "INSERT INTO NVTX_PAYLOAD_ENUM_ENTRIES VALUES (?, ?, ?, ?, ?, ?)",
            [(1, REDUCTION, n, name, n, None) for n, name in enumerate(("Sum", "Product", "Max", "Min", "Avg"))],
        )
        nvtx = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId, binaryData) VALUES (?, ?, 59, ?, ?, 1, ?)"
        ranges = [
            (10, 90, "ncclCommInitRankConfig", blob("init", WORLD, 4, rank, 0)),
            (100, 190, "ncclCommSplit", blob("init", PAIR, 2, rank % 2, 0)),
            (1000, 1100, "ncclAllReduce", blob("reduced", WORLD, 4096, 4)),
            (2000, 2100, "ncclReduceScatter", blob("reduced", WORLD, 1024, 0)),
            (3000, 3010, "ncclSend", blob("peer", PAIR, 512, 1 - rank % 2)),
            (3020, 3030, "ncclRecv", blob("peer", PAIR, 256, 1 - rank % 2)),
            (3040, 3100, "ncclGroupEnd", None),
            (4000, 4100, "ncclAllGather", blob("part", PAIR, 64)),
        ]
        for start, end, text, data in ranges:
            held = data.hex() if data and as_text else data
            db.execute(nvtx, (start, end, text, thread, held))
        kernels = [
            (1500, 11, 1, 1050, None),
            (2500, 12, 9, 2050, None),
            (3500, 13, 7, 3090, None),
            (9500, 14, 1, 9000, 77),
        ]
        for start, correlation, name, launch, node in kernels:
            row = (start, start + 100, 0, 1, None, 20, correlation, process, name, name, None, 0, 1, node)
            db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 14)})", row)
            api = (launch, launch + 5, 0, thread, correlation, 3, 0, None)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)", api)
    db.close()
    return path
