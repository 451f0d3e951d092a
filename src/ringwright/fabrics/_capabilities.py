"""What aggregating switches can do, with the source of each figure.

Which number formats they add is said by the formats (``SWITCHES`` beside each, in ``ringwright.model.codecs``).
"""

from __future__ import annotations

from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.model.codecs.formats import added_by
from ringwright.model.topology import Capability

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

# InfiniBand switches with SHARP v2 (Quantum): 40 ports of 200 Gb/s, no 8-bit types and no bfloat16 (as above), and one streaming
# aggregation tree at a time per switch (NVIDIA SHARP 3.13.0, general information).
QUANTUM = Capability(
    ops=("sum", "min", "max"),
    dtypes=("float16", "float32", "float64", "int32", "uint32", "int64", "uint64"),
    fanin_max=40,
    concurrency=1,
    payload_bytes=4096,
    # As for Quantum-2, at half the rate and 40 ports: 40 * 25 GB/s for 5 us.
    memory_bytes=5 << 20,
    order="arrival",
    provenance="NVIDIA SHARP 3.13.0, Mellanox/nccl-rdma-sharp-plugins; memory inferred",
)
# A programmable switch (Tofino) with the public SwitchML program (p4lang/p4app-switchML).
TOFINO = Capability(
    # Registers of 32 bits, to which a packet adds; what its exponents need of a maximum is part of the number format.
    ops=("sum",),
    dtypes=("int32", "uint32"),
    # The bitmap of a slot has 32 bits, one for each worker of a job.
    fanin_max=32,
    # 256 integers a packet are the most, in 16,384 entries: two versions of 8,192 slots.
    payload_bytes=1024,
    memory_bytes=16384 * 1024,
    order="arrival",
    provenance="p4lang/p4app-switchML",
)
# The same switch with the units that FPISA asks for: a shift by a register's value, and a shift before an addition in the
# register unit (arXiv 2112.06095). No such switch is sold; as many floats fit into a packet as integers.
FPISA = Capability(
    ops=("sum",),
    dtypes=("int32", "uint32"),
    fanin_max=32,
    payload_bytes=1024,
    memory_bytes=16384 * 1024,
    order="arrival",
    provenance="arXiv 2112.06095, with the hardware it asks for",
)
# FPISA on a Tofino as it is: an alignment takes an instruction for each distance, so that a pass adds one float of a packet.
TOFINO_FPISA = replace(FPISA, payload_bytes=4, memory_bytes=16384 * 4, provenance="arXiv 2112.06095")
# An FPGA that is switch and adder of float32 in one (Liu et al., IEEE TCAS-I 68(10), 2021): 8 ports of 10 Gb/s, and 512 bits at
# 156.25 MHz, which is what 8 such ports bring. What slots have of block RAM is not said. Inferred: 1 MiB, the ports for 100 us.
FPGA = Capability(
    ops=("sum",),
    dtypes=("float32",),
    fanin_max=8,
    reduce_rate=512 / 8 * 156.25e6,
    payload_bytes=1024,
    memory_bytes=1 << 20,
    order="arrival",
    provenance="doi 10.1109/TCSI.2021.3098841; rate and memory inferred",
)
ADDING = {
    "plain": None,
    "quantum": QUANTUM,
    "quantum-2": SHARP,
    "tofino": TOFINO,
    "tofino-fpisa": TOFINO_FPISA,
    "fpisa": FPISA,
    "fpga": FPGA,
}
SWITCHES = tuple(ADDING)


def adding(switches: str, *, sharp: bool) -> Capability | None:
    """Return what the switches of a network add, and in which formats; None for plain ones.

    UsageError where it is said twice, or by no known name.
    """
    if switches not in ADDING:
        raise UsageError(f"'{switches}' are no switches that are known", remedy=f"one of: {', '.join(SWITCHES)}")
    if sharp and switches not in ("plain", "quantum-2"):
        raise UsageError(
            f"sharp=true and switches={switches} are two kinds of switches", remedy=f"switches={switches} alone"
        )
    name = "quantum-2" if sharp else switches
    able = ADDING[name]
    return None if able is None else replace(able, codecs=added_by(name))


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


# A server beside a switch that runs an application's own function (NetAgg's agg box).
SERVER = Capability(
    # Any associative and commutative function of its own program.
    ops=("sum", "prod", "min", "max"),
    dtypes=("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"),
    # Connections: none of these is published. Assumed of a server of its day.
    fanin_max=4096,
    concurrency=1024,
    memory_bytes=16 << 30,
    # The largest segment that a host gives to its NIC at once.
    payload_bytes=65536,
    # Each copy of a result is a connection of its own.
    multicast=False,
    order="arrival",
    provenance="an agg box is a server (Mai et al., CoNEXT 2014); memory and connections assumed",
)
