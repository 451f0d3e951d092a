"""What aggregating switches can do, with the source of each figure."""

from __future__ import annotations

from ringwright.topology import Capability

# InfiniBand switches with SHARP v3 (Quantum-2).
SHARP = Capability(
    # What Mellanox/nccl-rdma-sharp-plugins (src/sharp_plugin.c) offers to NCCL; 8-bit types and bfloat16 from v3 switches on.
    ops=("sum", "min", "max"),
    dtypes=("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"),
    # 64 ports of 400 Gb/s (QM9700 data sheet); one streaming aggregation tree at a time per port (NVIDIA SHARP 3.13.0,
    # general information; Quantum, the generation before: one per switch).
    fanin_max=64,
    concurrency=64,
    # The largest packet of InfiniBand.
    payload_bytes=4096,
    # What streaming aggregation buffers is not published. Inferred: 64 ports at 400 Gb/s for 5 us, the round trip of three
    # levels, without which the 95 % of the line that Graham et al. (ISC 2020) measured could not be had.
    memory_bytes=16 << 20,
    # Whether a tree adds its children in a fixed order is not said: the strict reading.
    order="arrival",
    provenance="NVIDIA SHARP 3.13.0, QM9700; memory inferred",
)


def nvls(gpus: int) -> Capability:
    """Return what a third-generation NVSwitch or later adds for its GPUs (NVLink SHARP; NCCL's NVLS algorithms)."""
    return Capability(
        # multimem.ld_reduce and multimem.red of PTX 8.1; NCCL leaves out 8-bit integers.
        ops=("sum", "min", "max"),
        dtypes=("float16", "bfloat16", "float32", "float64", "int32", "uint32", "int64", "uint64"),
        fanin_max=gpus,
        # Data of the largest NVLink packet: 16 flits of 16 B (Foley and Danskin, IEEE Micro 37(2), 2017).
        payload_bytes=256,
        # What the switch holds of requests under way is not published. Inferred: sums and copies at 900 GB/s (NVLink 5) for
        # 2 us each, without which NCCL's busbw of 480 GB/s on H100 (NVIDIA/nccl issue 1455) could not be had.
        memory_bytes=4 << 20,
        # Nobody leases streams of an NVSwitch: a communicator binds one multicast object. Assumed.
        concurrency=64,
        # Nor is the order of adding.
        order="arrival",
        provenance="NVIDIA PTX ISA 8.1; memory inferred",
    )
