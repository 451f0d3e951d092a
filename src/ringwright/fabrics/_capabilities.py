"""What aggregating switches can do, with the source of each figure."""

from __future__ import annotations

from ringwright.topology import Capability

# InfiniBand switches with SHARP v3 (Quantum-2), vendor documentation 3.x: what the NCCL plug-in offers to the network.
SHARP = Capability(
    ops=("sum", "min", "max"),
    dtypes=("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"),
    fanin_max=64,
    memory_bytes=1 << 20,
)


def nvls(gpus: int) -> Capability:
    """Return what a third-generation NVSwitch or later adds for its GPUs (NVLink SHARP; NCCL's NVLS algorithms)."""
    return Capability(
        ops=("sum", "min", "max"),
        dtypes=("float16", "bfloat16", "float32", "float64", "int32", "uint32", "int64", "uint64"),
        fanin_max=gpus,
        memory_bytes=1 << 20,
    )
