"""The words NCCL prints, release by release (2.3 to 2.30), and RCCL's additions; no job, no randomness, only shapes.

NCCL promises nothing about this text, so each method names the release in which a shape changed. A shape is
written from the observed format, one method per line kind, and every method returns the text after
``NCCL INFO ``; ``Dialect.line`` puts the prefix in front.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.ground.errors import UsageError
from ringwright_lab.testing.nccl_fields import ELEMENT_BYTES, RELEASES, CollText, CommunicatorRank, pointer_text

_ALGORITHM_ID = {"TREE": 0, "RING": 1, "COLLNET_DIRECT": 2, "COLLNET_CHAIN": 3, "NVLS": 4, "NVLS_TREE": 5, "PAT": 6}
_PROTOCOL_ID = {"LL": 0, "LL128": 1, "SIMPLE": 2}
_RINGS_SHOWN_BEFORE_2_23 = 20
_RING_CHARACTERS_SINCE_2_23 = 128


def dialect(release: str, *, rccl: bool = False, timestamps: bool = False) -> Dialect:
    """Return the dialect of ``2.21`` or ``2.21.5``; raise UsageError for a release outside 2.3 to 2.30."""
    key = ".".join(release.split(".")[:2])
    if key not in RELEASES:
        raise UsageError(f"no dialect for NCCL {release}", remedy="choose a release from 2.3 to 2.30, for example 2.27")
    version = RELEASES[key]
    if release.count(".") == 2:
        version = (version[0], version[1], int(release.split(".")[2]))
    if timestamps and version < (2, 26):
        raise UsageError(f"NCCL {release} prints no time stamps", remedy="choose 2.26 or later, or timestamps=False")
    return Dialect(version, rccl=rccl, timestamps=timestamps)


@dataclass(frozen=True)
class Dialect:
    """One release's way of printing."""

    version: tuple[int, int, int]
    rccl: bool = False
    timestamps: bool = False

    @property
    def text(self) -> str:
        """The version as ``2.27.7``."""
        return ".".join(map(str, self.version))

    # ------------------------------------------------------------------------------------- what the numbers mean
    @property
    def has_point_to_point(self) -> bool:
        """Send and Recv exist since 2.7."""
        return self.version >= (2, 7)

    @property
    def has_own_all_to_all(self) -> bool:
        """AlltoAll, Gather and Scatter have lines of their own since 2.28; before, they are grouped sends."""
        return self.version >= (2, 28)

    @property
    def counts_launches(self) -> bool:
        """``opCount`` counts operations up to 2.7 and launches since, so a group shares one."""
        return self.version >= (2, 8)

    def op_count_stays_zero(self, nnodes: int) -> bool:
        """Return whether ``opCount`` never moves: on one node since 2.27."""
        return self.version >= (2, 27) and nnodes == 1

    def printed_count(self, op: str, count: int, datatype: int) -> tuple[int, int]:
        """Return (count, datatype) as printed: 2.4 to 2.21 turn all-gather and broadcast into bytes, datatype 0."""
        if op in {"all-gather", "broadcast"} and (2, 4) <= self.version < (2, 22):
            return count * ELEMENT_BYTES[datatype], 0
        return count, datatype

    # --------------------------------------------------------------------------------------------------- prefixes
    def line(self, host: str, pid: int, tid: int, device: int, text: str, stamp: str = "") -> str:
        """Return one INFO line; ``stamp`` is ``YYYY-mm-dd HH:MM:SS`` and used only with time stamps on."""
        lead = f"[{stamp}] " if self.timestamps and stamp else ""
        return f"{lead}{host}:{pid}:{tid} [{device}] NCCL INFO {text}"

    def call_line(self, host: str, pid: int, tid: int, text: str) -> str:
        """Return one API-call line (since 2.14, only at trace level): no device, pointers partly without 0x."""
        return f"{host}:{pid}:{tid} NCCL CALL {text}"

    # --------------------------------------------------------------------------------------------- start of a job
    def version_line(self) -> str:
        """Return the bare version line that rank 0 prints to standard output."""
        if self.rccl:
            return f"RCCL version {self.text}+hip6.2 HEAD:0000000"
        return f"NCCL version {self.text}+cuda{'12.4' if self.version >= (2, 18) else '11.0'}"

    def environment(self, name: str, value: str) -> str:
        """Return the ENV line of one variable; the full stop came with 2.4."""
        return f"{name} set by environment to {value}{'.' if self.version >= (2, 4) else ''}"

    def network_lines(self, network: str, address: str, interface: str, nics: int) -> list[str]:
        """Return Bootstrap, NET/Plugin, NET/IB or NET/Socket and Using lines; ``network`` is IB or Socket."""
        used = f"{interface}:{address}<0>"
        colon = ":" if self.version >= (2, 24) else " :"
        lines = [f"Bootstrap{colon} Using {'[0]' if self.version < (2, 8) else ''}{used}"]
        if self.version >= (2, 23):
            lines.append("NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.")
        else:
            lines.append("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation")
        if network == "IB":
            cards = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(nics))
            relaxed = " [RO]" if self.version >= (2, 12) else " "
            lines.append(f"NET/IB : Using {cards}{relaxed}; OOB {used}")
        else:
            lines += ["NET/IB : No device found.", f"NET/Socket : Using [0]{used}"]
        if self.version >= (2, 24):
            lines.append(f"Assigned NET plugin {network} to comm")
        if self.version >= (2, 7):
            lines.append(f"Using network {network}")
        return lines

    # ------------------------------------------------------------------------------------------------------- INIT
    def init_lines(self, who: CommunicatorRank, *, complete: bool) -> str:
        """Return ``Init START`` (since 2.18) or ``Init COMPLETE``."""
        text = f"comm {pointer_text(who.pointer)} rank {who.rank} nranks {who.nranks} cudaDev {who.device}"
        if (2, 4) <= self.version < (2, 6) or self.version >= (2, 18):
            text += f" nvmlDev {who.device}"
        if self.version >= (2, 6):
            text += f" busId {who.bus_id:x}"
        gap = " "
        if self.version >= (2, 21):
            text = ("ncclCommSplit " if who.parent else "ncclCommInitRank ") + text
            if who.parent:
                text += self._split_fields(who)
                gap = " " if complete else ""  # a split's START has no space before the dash
        if self.version >= (2, 16) and not (who.parent and self.version >= (2, 24)):
            text += f" commId 0x{who.comm_id:x}"
            gap = " "
        return f"{text}{gap}- Init {'COMPLETE' if complete else 'START'}"

    def _split_fields(self, who: CommunicatorRank) -> str:
        number = ""
        if self.version >= (2, 29):
            number = f" childCount {who.split_number}"
        elif self.version >= (2, 24):
            number = f" splitCount {who.split_number}"
        return f" parent {pointer_text(who.parent)}{number} color {who.color} key {who.rank}"

    def layout_line(self, who: CommunicatorRank, nnodes: int, local_ranks: int, local_rank: int) -> str:
        """Return the nRanks/nNodes line, printed since 2.20."""
        return (
            f"comm {pointer_text(who.pointer)} rank {who.rank} nRanks {who.nranks} nNodes {nnodes} "
            f"localRanks {local_ranks} localRank {local_rank} MNNVL 0"
        )

    def timings_line(self, who: CommunicatorRank, total_s: float) -> str:
        """Return ``Init timings``, printed since 2.22 and reshaped in 2.23."""
        caller = "ncclCommSplit" if who.parent else "ncclCommInitRank"
        head = f"Init timings - {caller}:" if self.version >= (2, 23) else "Init timings:"
        alloc = ", alloc 0.04" if self.version >= (2, 24) else ""
        return (
            f"{head} rank {who.rank} nranks {who.nranks} total {total_s:.2f} (kernels 0.11{alloc}, bootstrap 0.20, "
            f"allgathers 0.01, topo 0.06, graphs 0.01, connections {total_s / 4:.2f}, rest 0.01)"
        )

    def end_line(self, who: CommunicatorRank, *, aborted: bool) -> str:
        """Return ``Destroy COMPLETE`` or ``Abort COMPLETE``, printed since 2.12."""
        return (
            f"comm {pointer_text(who.pointer)} rank {who.rank} nranks {who.nranks} cudaDev {who.device} "
            f"busId {who.bus_id:x} - {'Abort' if aborted else 'Destroy'} COMPLETE"
        )

    # ------------------------------------------------------------------------------------------------------ GRAPH
    def ring_line(self, channel: int, channels: int, order: list[int]) -> str:
        """Return the ring list of one channel (rank 0 alone prints it), cut where the release cuts it."""
        if self.version >= (2, 23):
            text = f"Channel {channel:02d}/{channels:02d} :"
            for rank in order:
                if len(text) + len(str(rank)) + 1 > _RING_CHARACTERS_SINCE_2_23 - 4:
                    return text + " ..."
                text += f" {rank}"
            return text
        word = "Ring" if self.version < (2, 4) else "Channel"
        of = f"/{channels:02d}" if self.version >= (2, 5) else ""
        return f"{word} {channel:02d}{of} : " + "".join(f"{rank:4d}" for rank in order[:_RINGS_SHOWN_BEFORE_2_23])

    def trees_line(self, trees: list[tuple[int, list[int]]], who: CommunicatorRank) -> str:
        """Return the ``Trees`` line (since 2.4) from (parent, children) per channel."""
        parts = []
        for channel, (parent, children) in enumerate(trees):
            down = "/".join(str(child) for child in (*children, -1, -1, -1)[:3])
            if self.version < (2, 5):
                parts.append(f"[{channel}] {parent}->{who.rank}->{down}")
            elif self.version < (2, 8):
                parts.append(f"[{channel}] {down}->{who.rank}->{parent}|{parent}->{who.rank}->{down}")
            else:
                parts.append(f"[{channel}] {down}->{who.rank}->{parent}")
        return "Trees " + " ".join(parts) + self._rccl_tail(who, bus_id=True)

    def _rccl_tail(self, who: CommunicatorRank, *, bus_id: bool = False) -> str:
        if not self.rccl:
            return ""
        tail = f" comm {pointer_text(who.pointer)} nRanks {who.nranks:02d}"
        return tail + (f" busId {who.bus_id:x}" if bus_id else "")

    def connection_line(
        self, channel: int, source: CommunicatorRank, target: CommunicatorRank, *, via: str, side: str
    ) -> str:
        """Return one connection; ``via`` as printed (``P2P/IPC``, ``NET/IB/0``), ``side`` send, receive or empty."""
        word = "Ring" if self.version < (2, 7) else "Channel"
        index = "/0" if self.version >= (2, 12) else ""
        ends = []
        for end in (source, target):
            inside = f"{end.bus_id:x}" if (2, 6) <= self.version < (2, 18) else str(end.device)
            ends.append(str(end.rank) if self.version < (2, 6) and side else f"{end.rank}[{inside}]")
        direction = f" [{side}]" if side and self.version >= (2, 4) else ""
        tail = self._rccl_tail(source)
        return f"{word} {channel:02d}{index} : {ends[0]} -> {ends[1]}{direction} via {via}{tail}"

    def peer_via(self) -> str:
        """Return how two GPUs of one host reach each other."""
        if self.version < (2, 8):
            return "P2P/IPC"
        return "P2P/CUMEM/read" if self.version >= (2, 18) and not self.rccl else "P2P/IPC/read"

    def channels_lines(self, channels: int) -> list[str]:
        """Return threadThresholds and the channel counts (2.7, 2.18 and 2.20 shapes)."""
        lines = []
        if self.version >= (2, 5):
            tail = "8/8/64" if self.version < (2, 9) else "512 | 512" if self.version >= (2, 12) else "512"
            lines.append(f"threadThresholds 8/8/64 | 64/8/64 | {tail}")
        if self.version >= (2, 7):
            extra = ""
            if self.version >= (2, 20):
                extra = "0 collnet channels, 0 nvls channels, "
            elif self.version >= (2, 18):
                extra = "0 nvls channels, "
            p2p = f"{channels} p2p channels, {max(1, channels // 2)} p2p channels per peer"
            lines.append(f"{channels} coll channels, {extra}{p2p}")
        return lines

    def connected_lines(self) -> list[str]:
        """Return what follows the connections: nothing before 2.9, rings and trees since."""
        if self.version >= (2, 24):
            return ["Connected all rings, use ring PXN 0 GDR 1", "Connected all trees"]
        return ["Connected all rings", "Connected all trees"] if self.version >= (2, 9) else []

    # ------------------------------------------------------------------------------------------------------- COLL
    def coll_line(self, coll: CollText) -> str:
        """Return one COLL line."""
        tail = f" task {coll.task} globalrank {coll.global_rank}" if self.rccl else ""
        return (
            f"{coll.name}: opCount {coll.op_count:x} sendbuff {pointer_text(coll.send_buffer)} "
            f"recvbuff {pointer_text(coll.receive_buffer)} count {coll.count} datatype {coll.datatype} "
            f"op {coll.reduction} root {coll.root} comm {pointer_text(coll.pointer)} [nranks={coll.nranks}] "
            f"stream {pointer_text(coll.stream)}{tail}"
        )

    def call_text(self, coll: CollText) -> str:
        """Return the API call behind a COLL line; buffers are printed without 0x."""
        return (
            f"nccl{coll.name}({coll.send_buffer:x},{coll.receive_buffer:x},{coll.count},{coll.datatype},"
            f"{coll.reduction},{coll.root},{pointer_text(coll.pointer)},{pointer_text(coll.stream)})"
        )

    # ----------------------------------------------------------------------------------------------------- TUNING
    def tuning_line(
        self, name: str, size_bytes: int, algorithm: str, protocol: str, channels: int, time_s: float
    ) -> str | None:
        """Return the decision for one operation, or None where the release prints none (before 2.20)."""
        if self.version < (2, 20):
            return None
        if self.version < (2, 24):
            func = f"{name}: " if self.version >= (2, 23) else ""
            ids = f"Algo {_ALGORITHM_ID[algorithm]} proto {_PROTOCOL_ID[protocol]}"
            return f"{func}{size_bytes} Bytes -> {ids} time {time_s * 1e6:f}"
        last = channels - 1
        return f"{name}: {size_bytes} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{last}}}"

    def symmetric_line(self, name: str, size_bytes: int, channels: int, works: int) -> str | None:
        """Return the line of a symmetric-memory kernel (since 2.27, with the number of works since 2.28)."""
        if self.version < (2, 27):
            return None
        text = f"{name} [Symmetric]: {size_bytes} Bytes -> Kernel {name}_RSxLD_AGxST nchannels {channels} nthreads 512"
        return text + (f" nWorks {works}" if self.version >= (2, 28) else "")

    def copy_engine_line(self, name: str, size_bytes: int, *, hierarchical: bool) -> str | None:
        """Return the copy-engine line (since 2.29; across nodes since 2.30)."""
        if hierarchical:
            text = f"{name} [Hierarchical CE]: {size_bytes} Bytes -> RMA proxy + CE"
            return text if self.version >= (2, 30) else None
        return f"{name} [Copy Engine]: {size_bytes} Bytes -> cudaMemcpy" if self.version >= (2, 29) else None
