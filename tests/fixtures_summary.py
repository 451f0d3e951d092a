"""Hand-made summary objects for the tests of reports, gates and diffs: no reader and no analysis is needed."""

from __future__ import annotations

import copy
from typing import Any

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028&'\""

_SIZES = {
    "all-reduce": [(64, 1200), (16_384, 7200), (4_194_304, 960), (33_554_432, 480), (134_217_728, 96)],
    "all-gather": [(8_192, 320), (67_108_864, 640)],
    "reduce-scatter": [(67_108_864, 320)],
    "all-to-all": [(2_097_152, 512)],
    "send": [(25_165_824, 256)],
    "recv": [(25_165_824, 256)],
    "broadcast": [(24, 40), (1_048_576, 4)],
}
_ROLES = {
    "all-reduce": "tp",
    "all-gather": "dp",
    "reduce-scatter": "dp",
    "all-to-all": "ep",
    "send": "pp",
    "recv": "pp",
}


def empty_summary() -> dict[str, Any]:
    """Return the required keys of a log without collectives, and nothing else."""
    return {
        "schema": "ringwright.summary/1",
        "nccl_versions": [],
        "hosts": 0,
        "ranks_seen": 0,
        "ranks_expected": None,
        "communicators": [],
        "operations": [],
        "roles": {"tp": None, "pp": None, "dp": None, "ep": None},
        "pair_bytes": [],
        "truncated": False,
        "ledger": {"lines": 0, "understood": 0, "repaired": 0, "refused": 0, "other": 0},
        "verdict": None,
        "warnings": [],
    }


def job_summary(*, hosts: int = 2, ranks_per_host: int = 8, hostile: bool = False) -> dict[str, Any]:
    """Return a full summary of a job of ``hosts`` x ``ranks_per_host`` ranks; ``hostile`` puts markup in its names."""
    ranks = hosts * ranks_per_host
    suffix = HOSTILE if hostile else ""
    names = [f"node{index:02d}{suffix}" for index in range(hosts)]
    summary = empty_summary()
    summary.update(_head(hosts, ranks, suffix))
    summary.update(_operations())
    summary.update(_communicators(ranks, ranks_per_host))
    summary.update(_traffic(ranks, ranks_per_host, names))
    summary.update(_story(names, suffix))
    return summary


def changed_summary() -> dict[str, Any]:
    """Return :func:`job_summary` with twice as many large all-reduces and another algorithm."""
    summary = copy.deepcopy(job_summary())
    for operation in summary["operations"]:
        if operation["op"] == "all-reduce":
            operation["size_histogram"][-1]["count"] *= 2
            operation["count"] += 96
            operation["bytes"] += 96 * 134_217_728
    summary["algorithms"][0]["algorithm"] = "TREE"
    return summary


def _head(hosts: int, ranks: int, suffix: str) -> dict[str, Any]:
    return {
        "coverage": f"{ranks} of {ranks} ranks on {hosts} hosts, NCCL 2.27.3, 98,412 lines, 99.98 % understood",
        "inputs": [f"job/nccl{suffix}.log"],
        "source": "nccl-log",
        "nccl_versions": ["2.27.3"],
        "hosts": hosts,
        "ranks_seen": ranks,
        "ranks_expected": ranks,
        "roles": {"tp": 8, "pp": 1, "dp": hosts, "ep": None},
        "ledger": {"lines": 98_412, "understood": 97_200, "repaired": 980, "refused": 20, "other": 212},
        "warnings": [f"980 lines were cut into each other and repaired{suffix}"],
        "limits": [
            "the log holds no times: durations and waits cannot be shown",
            "operations replayed from CUDA graphs are not logged: counts are lower bounds",
        ],
    }


def _operations() -> dict[str, Any]:
    operations = []
    classes = []
    for op, sizes in _SIZES.items():
        total = sum(count for _, count in sizes)
        moved = sum(size * count for size, count in sizes)
        histogram = [{"size_bytes": size, "count": count} for size, count in sizes]
        operations.append({"op": op, "count": total, "records": total * 8, "bytes": moved, "size_histogram": histogram})
        for size, count in sizes:
            low = 1 << (size.bit_length() - 1)
            classes.append(
                {"op": op, "log2_low_bytes": low, "log2_high_bytes": 2 * low, "count": count, "bytes": size * count}
            )
    by_role = [
        {"role": _ROLES.get(o["op"], "world"), **{k: o[k] for k in ("op", "count", "bytes")}} for o in operations
    ]
    by_phase = [{"phase": "init", "op": "broadcast", "count": 44, "bytes": 4_195_264}]
    algorithms = [
        {
            "op": "all-reduce",
            "size_bytes": 134_217_728,
            "algorithm": "RING",
            "protocol": "SIMPLE",
            "channels": 16,
            "count": 96,
        },
        {"op": "all-reduce", "size_bytes": 16_384, "algorithm": "TREE", "protocol": "LL", "channels": 2, "count": 7200},
    ]
    return {
        "operations": operations,
        "size_classes": classes,
        "by_role": by_role,
        "by_phase": by_phase,
        "algorithms": algorithms,
    }


def _communicators(ranks: int, per_host: int) -> dict[str, Any]:
    groups = [(list(range(ranks)), "world")]
    groups += [(list(range(first, first + per_host)), "tp") for first in range(0, ranks, per_host)]
    groups += [(list(range(first, ranks, per_host)), "dp") for first in range(per_host)]
    listed = [
        {
            "communicator": index,
            "comm_id": f"0x{index:016x}",
            "size": len(members),
            "members": members,
            "ranks_seen": len(members),
            "nnodes": max(1, len(members) // per_host),
            "role": role,
            "role_evidence": "contiguous ranks on one host" if role == "tp" else "equal stride",
            "parent": None if role == "world" else 0,
            "ground": "read" if role == "world" else "inferred",
            "operations": 600 + index,
            "bytes": (index + 1) * 3_000_000_000,
        }
        for index, (members, role) in enumerate(groups)
    ]
    sizes = sorted({len(members) for members, _ in groups}, reverse=True)
    counts = [{"size": size, "count": sum(len(m) == size for m, _ in groups)} for size in sizes]
    return {"communicators": counts, "communicator_list": listed}


def _traffic(ranks: int, per_host: int, names: list[str]) -> dict[str, Any]:
    pairs = [{"src": r, "dst": (r + 1) % ranks, "bytes": 48_000_000_000 + r * 10_000_000} for r in range(ranks)]
    pairs += [{"src": r, "dst": (r + per_host) % ranks, "bytes": 6_000_000_000} for r in range(ranks)]
    pairs += [
        {"src": a, "dst": b, "bytes": 400_000_000}
        for a in range(min(ranks, 64))
        for b in range(min(ranks, 64))
        if a // per_host == b // per_host and abs(a - b) > 1
    ]
    host_pairs = [
        {"src": name, "dst": names[(index + 1) % len(names)], "bytes": 96_000_000_000 + index}
        for index, name in enumerate(names)
    ]
    nics = [
        {"host": name, "nic": f"mlx5_{n}", "sent_bytes": 12_000_000_000 + n, "received_bytes": 12_000_000_000}
        for name in names
        for n in range(4)
    ]
    seen = [
        {
            "rank": r,
            "host": names[r // per_host],
            "pid": 4000 + r,
            "device": r % per_host,
            "bus_id": f"{r % per_host:02x}000",
            "records": 6150,
        }
        for r in range(ranks)
    ]
    ground = {
        "algorithm": "assumed: ring",
        "ground": "assumed",
        "low_bytes": 0.8e12,
        "high_bytes": 1.6e12,
        "conserved": True,
    }
    return {"pair_bytes": pairs, "host_pair_bytes": host_pairs, "nic_bytes": nics, "ranks": seen, "pair_ground": ground}


def _story(names: list[str], suffix: str) -> dict[str, Any]:
    waves = [40e9 if index % 10 in (7, 8) else 2e9 * (1 + index % 3) for index in range(120)]
    return {
        "timeline": {
            "bin_s": 0.1,
            "start_s": 0.0,
            "clock": "log timestamps, one host",
            "series": [{"op": "all-reduce", "bytes": waves}, {"op": "all-gather", "bytes": [w / 3 for w in waves]}],
            "bursts": [{"start_s": 0.7 + i, "duration_s": 0.2, "bytes": 106e9, "count": 52} for i in range(12)],
        },
        "concurrency": [{"communicator_a": 1, "communicator_b": 3, "overlaps": 42}],
        "iterations": [{"iteration": i, "time_s": 1.0 + i / 100} for i in range(12)],
        "provision": {
            "bytes_per_step_per_nic": 3_200_000_000,
            "largest_burst_bytes": 106_000_000_000,
            "steps": 12,
            "share_per_op": [{"op": "all-gather", "share": 0.46}, {"op": "all-reduce", "share": 0.31}],
            "note": "12 repeating steps inferred from the order of calls",
        },
        "verdict": None,
        "findings": [
            {
                "severity": "warning",
                "title": f"7,200 all-reduces of 16 KiB{suffix}",
                "detail": "Three in four calls move 0.1 % of the bytes; they are bound by latency.",
                "evidence": ["all-reduce 16 KiB: 7,200 calls"],
                "command": 'ringwright query "select * from events where size_bytes = 16384" job/',
            },
            {
                "severity": "info",
                "title": "Bytes are even over NICs",
                "detail": "The busiest NIC carries 1.00 times the mean.",
                "evidence": [],
                "command": "ringwright report job/ -o job.html",
            },
        ],
        "claims": [
            {
                "field": "roles.tp",
                "value": "8",
                "source": "nccl-log",
                "ground": "inferred",
                "confidence": 0.9,
                "note": "contiguous ranks",
            },
            {
                "field": "pair_bytes",
                "value": "ring",
                "source": "nccl-log",
                "ground": "assumed",
                "confidence": 0.6,
                "note": "",
            },
        ],
        "ledger_detail": [
            {
                "outcome": "refused",
                "reason": "cut line",
                "lines": 20,
                "example_line": 512,
                "example": f"node00:4{suffix}",
                "file": "job/nccl.log",
            },
            {
                "outcome": "repaired",
                "reason": "two records on one line",
                "lines": 980,
                "example_line": 77,
                "example": "node01:1:2 [0] NCCL",
                "file": "job/nccl.log",
            },
        ],
        "errors": [
            {
                "rank": 3,
                "host": names[0],
                "text": f"Got completion with error 12{suffix}",
                "file": "net_ib.cc",
                "line": 94,
                "code": 12,
                "first": True,
            }
        ]
        if suffix
        else [],
    }
