"""Traces of XLA's profiler (``*.xplane.pb`` of JAX and TensorFlow): what each device ran, and the programs that it belongs to.

A file is one XSpace message: planes (a device, the host) of lines (a stream, a thread) of events, whose names and values stand
once per plane. The plane ``/host:metadata`` carries the compiled program of each module (HloProto): the shapes of an
operation's operands, its groups of devices, its reduction. An event names its operation (``hlo_op``) and its program, so size,
type, members and time come together. Many devices in one file are so many ranks, in the order of their global numbers.
Source: xplane.proto, hlo.proto and xla_data.proto of openxla/xla.
"""

from __future__ import annotations

from ringwright.formats.sources.xplane.reader import read_xplane

__all__ = ["read_xplane"]
