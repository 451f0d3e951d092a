"""What is decoded of a trace event, and nothing more: the fields this reader needs, of any JSON type.

Fields are ``Any`` because real traces spell them in several types, and because one odd event must not cost its
neighbours; whoever uses a field checks its type. ``args`` stays undecoded until the category says that it matters.
"""

from __future__ import annotations

from typing import Any

import msgspec

_EMPTY = msgspec.Raw(b"{}")


class Event(msgspec.Struct, gc=False):
    """One element of ``traceEvents``: times in microseconds."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: msgspec.Raw = _EMPTY


class CallArgs(msgspec.Struct, gc=False):
    """What a call of the CUDA or HIP runtime carries."""

    correlation: Any = None


class CommArgs(msgspec.Struct, gc=False):
    """What ``record_param_comms`` carries, and newer releases copy onto the kernel."""

    external: Any = msgspec.field(default=None, name="External id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    dtype: Any = None
    in_count: Any = msgspec.field(default=None, name="In msg nelems")
    out_count: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_id: Any = msgspec.field(default=None, name="Process Group ID")
    group_text: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank: Any = msgspec.field(default=None, name="Rank")
    src_rank: Any = msgspec.field(default=None, name="Src Rank")
    dst_rank: Any = msgspec.field(default=None, name="Dst Rank")
    first_rank: Any = msgspec.field(default=None, name="Global rank start")
    stride: Any = msgspec.field(default=None, name="Global rank stride")
    sequence: Any = msgspec.field(default=None, name="Seq")
    root: Any = None


class LabelArgs(msgspec.Struct, gc=False):
    """What a label of the host, or a call of PyTorch, carries where shapes are recorded."""

    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    inputs: Any = msgspec.field(default=None, name="Concrete Inputs")


class KernelArgs(CommArgs, gc=False):
    """What a kernel or copy on the device carries."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    grid: Any = None


decode_events = msgspec.json.Decoder(list[Event]).decode
decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
decode_call = msgspec.json.Decoder(CallArgs).decode
decode_comm = msgspec.json.Decoder(CommArgs).decode
decode_label = msgspec.json.Decoder(LabelArgs).decode
decode_kernel = msgspec.json.Decoder(KernelArgs).decode
decode_any = msgspec.json.decode

# What a decoder raises on text from elsewhere: bad JSON, a wrong type, bytes that are no UTF-8, nesting beyond reason.
BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)
