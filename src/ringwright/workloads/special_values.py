"""What layers read, write and keep that are neither matrices over tokens nor convolutions (``special_layers``, ``tables``)."""

from __future__ import annotations

from ringwright.workloads.dataflow import Pass, SegmentFlow
from ringwright.workloads.layer_work import LayerWork
from ringwright.workloads.tables import exchanged_bytes
from ringwright.workloads.tensors import ALL, IMAGES, OWN

TOKEN_BYTES = 8
PLAIN_NORM = ("diffusion",)  # families whose norms have no parameters
CONDITIONS = ("time_in", "time_out", "modulation")  # matrices of one row a sample


def patches(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """Patches of an image become tokens."""
    flow.inputs.append(line.new(flow, "patches", ALL, "pixels", work.gemms[0].k))
    line.pending.append(line.new(flow, "embedded", ALL, "hidden", line.hidden))


def taps(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """A state space keeps what goes into its convolution, with the gate beside it; its matrices read what comes out."""
    inner = line.tensors.model.dims["inner"]
    flow.inner.append(line.new(flow, f"{work.name}_input", OWN, "channels", 2 * inner))
    line.current = line.new(flow, work.name, OWN, "channels", inner)


def scan(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """The recurrence keeps its steps and its two matrices; its states are made once more."""
    dims = line.tensors.model.dims
    flow.inner.append(line.new(flow, f"{work.name}_steps", OWN, "channels", dims["inner"] + 2 * dims["state"]))
    line.current = line.new(flow, work.name, OWN, "channels", dims["inner"])


def plain_norm(line: Pass, flow: SegmentFlow, before: str) -> None:
    """A norm without parameters, before a matrix."""
    if line.pending:
        line.add(flow)
    flow.normed = True
    flow.read(line.stream)
    flow.inner.append(line.stream)
    line.current = line.new(flow, f"{before}_norm", OWN, "hidden", line.hidden)


def table(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """A table keeps which rows were looked up; behind the last one there are the vectors of all, for all ranks' samples."""
    model, step = line.tensors.model, line.tensors.step
    lookups = step.parallel.dp * model.dims["lookups"]
    flow.inputs.append(line.new(flow, f"{work.name}_rows", IMAGES, "rows", lookups, each=TOKEN_BYTES, dtype="int64"))
    if work == flow.item.works[-1]:
        width = exchanged_bytes(model, step.load) // (step.width_bytes * step.micro_batch_size)
        line.routed = line.new(flow, "vectors", IMAGES, "vectors", width)
