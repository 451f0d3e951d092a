"""A fabricated Nsight Systems export: the tables and columns of the real schema, made-up rows."""

from __future__ import annotations

import sqlite3
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
                nvtx, (400 + 100 * place, 450 + 100 * place, 59, None, 4, thread, 1, sizes[place % len(sizes)], None)
            )
        payload = '{"NCCL communicator ID": 77, "Message size [bytes]": 512}'
        db.execute(nvtx, (900, 950, 59, None, 6, thread, 1, None, payload))
        db.execute(nvtx, (0, 20000, 59, "ProfilerStep#12", None, thread, 0, None, None))
    db.close()
    return path
