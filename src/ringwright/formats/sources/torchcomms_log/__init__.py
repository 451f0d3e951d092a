"""Logs of torchcomms' ClogHook: a file a rank, a line for each kind of call (``sig``) and for each event of a call.

``Q`` the call was made, ``S`` and ``E`` it began and ended on the device, ``W`` the host waited; to a millisecond, and as the
hook learnt of it. Calls captured in a CUDA graph and their replays are told apart. Counts are elements. Source: version 1,
``comms/torchcomms/hooks/clog`` of meta-pytorch/torchcomms.
"""

from __future__ import annotations

from ringwright.formats.sources.torchcomms_log.reader import read_torchcomms_log

__all__ = ["read_torchcomms_log"]
