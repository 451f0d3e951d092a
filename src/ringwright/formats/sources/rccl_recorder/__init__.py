"""RCCL's Recorder (``RCCL_REPLAY_FILE=log.json``, ROCm 7.0 on): every call of a process, with the host's clock.

It looks like JSON and is none. Counts are elements; of all-gather, reduce-scatter, gather, scatter and all-to-all one rank's
part. A call captured in a HIP graph is written again each time it runs. The binary form is not read: its layout is that of one
build.
Source: ``src/misc/recorder.cc`` of ROCm/rccl and the documentation of RcclReplayer.
"""

from __future__ import annotations

from ringwright.formats.sources.rccl_recorder.reader import read_rccl_recorder

__all__ = ["read_rccl_recorder"]
