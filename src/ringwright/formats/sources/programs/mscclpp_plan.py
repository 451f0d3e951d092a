"""The fields of an MSCCL++ execution plan, in both dialects; what is not here is kept and not understood."""

from __future__ import annotations

from typing import Literal

import msgspec


class Buffer(msgspec.Struct, frozen=True):
    """An operand: a local buffer, one of the thread block's remote buffers, or one of its switch channels."""

    index: int
    size: int
    type: Literal["i", "o", "s"] | None = None
    buffer_id: int | None = None
    switch_channel_id: int | None = None


class GroupInfo(msgspec.Struct, frozen=True):
    """Which share of its range a thread block of a group takes."""

    tb_id: int
    tbg_size: int


class PlanOperation(msgspec.Struct, frozen=True):
    """One operation of a thread block; ``ops`` only in a pipeline."""

    name: str
    src_buff: list[Buffer] = []
    dst_buff: list[Buffer] = []
    channel_type: str = "none"
    channel_ids: list[int] = []
    reduce_op: str = "sum"
    tbg_info: GroupInfo | None = None
    barrier_id: int = 0
    num_threadblocks: int = 0
    semaphore_ids: list[int] = []
    iter_context: dict[str, int] = {}
    ops: list[PlanOperation] = []


class ChannelReference(msgspec.Struct, frozen=True):
    """Channels of one type that a thread block uses, as places in the rank's list of that type."""

    channel_type: str
    channel_ids: list[int]


class BufferReference(msgspec.Struct, frozen=True):
    """Remote buffers that a thread block reaches over one type of channel, as places in the rank's list."""

    access_channel_type: str
    remote_buffer_ids: list[int]


class ThreadBlock(msgspec.Struct, frozen=True):
    """Operations in order."""

    id: int
    ops: list[PlanOperation]
    channels: list[ChannelReference] = []
    remote_buffer_refs: list[BufferReference] = []


class RankGroup(msgspec.Struct, frozen=True):
    """Ranks behind one switch channel."""

    ranks: list[int]
    size: int = 0


class Channel(msgspec.Struct, frozen=True):
    """Channels of one type; the older dialect says ``type`` and ``buff``."""

    channel_type: str | None = None
    type: str | None = None
    connected_to: list[int] = []
    buffer_type: Literal["i", "o", "s"] | None = None
    buff: Literal["i", "o", "s"] | None = None
    rank_groups: list[RankGroup] = []

    @property
    def kind(self) -> str:
        """Type of the channels, in either spelling."""
        return self.channel_type or self.type or ""


class RemoteBuffer(msgspec.Struct, frozen=True):
    """A buffer of another rank that this one may reach."""

    rank: int
    type: Literal["i", "o", "s"]
    access_channel_types: list[str] = []


class Semaphore(msgspec.Struct, frozen=True):
    """A counter that thread blocks of one rank share."""

    init_value: int = 0


class PlanGpu(msgspec.Struct, frozen=True):
    """One rank."""

    id: int
    input_chunks: int
    output_chunks: int
    threadblocks: list[ThreadBlock]
    scratch_chunks: int = 0
    channels: list[Channel] = []
    remote_buffers: list[RemoteBuffer] = []
    semaphores: list[Semaphore] = []


class ExecutionPlan(msgspec.Struct, frozen=True):
    """A whole file."""

    name: str
    collective: str
    protocol: str
    inplace: bool
    gpus: list[PlanGpu]
    buffer_alignment: int = 16
    min_message_size: int = 0
    max_message_size: int = 2**64 - 1
