"""NCCL's functions without their prefix, as its logs, profilers and ranges name them, and the operation that each is."""

from __future__ import annotations

OPS = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "AllGatherV": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "Broadcast": "broadcast",
    "Bcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "all-to-all",
    "AllToAll": "all-to-all",
    "Gather": "gather",
    "Scatter": "scatter",
    "SendRecv": "send-recv",
    "Send": "send",
    "Recv": "recv",
}
