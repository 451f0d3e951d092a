"""Host events that say what a launch belongs to: a layer, sharded parameters, the backward pass, a fused operation."""

from __future__ import annotations

import re

from ringwright.formats.sources.kineto.columns import RankFile
from ringwright.formats.sources.kineto.spans import Spans
from ringwright.ground.trace_tables import Row

NOTHING, OPERATOR, BACKWARD, LABEL = range(4)
MODULE = "nn.Module: "
FSDP = "fsdp"
# variables of the environment that a trace may carry as keys of its document
VARIABLE = re.compile(r"^(?:TORCH_|PYTORCH_)?(?:NCCL|CUDA|RCCL|HSA|GPU|HIP|TORCH|PYTORCH|UCX|NVTE)_[A-Z0-9_]{2,60}$")
_OPERATORS = {"torch::autograd::AccumulateGrad": "gradient", "DistributedDataParallel.forward": "ddp"}
_ENGINE = "autograd::engine::"
_FUSED = (
    (
        "all-gather-matmul",
        re.compile(r"fused_all_gather_(?:scaled_)?matmul|all_gather_(?:scaled_)?(?:gemm|mm)\b", re.IGNORECASE),
    ),
    (
        "matmul-reduce-scatter",
        re.compile(r"fused_(?:scaled_)?matmul_reduce_scatter|(?:gemm|mm)_reduce_scatter\b", re.IGNORECASE),
    ),
)
_SHARDED = re.compile(r"^(?:FSDP::|FullyShardedDataParallel\.)")
_LAYER = re.compile(r"(?:^|[\s./(])((?:layers?|blocks?|h|transformer_blocks?|decoder_layers?)[._ ]\d{1,4})(?![\w])")
_MODULE = re.compile(r"^nn\.Module: (\w*(?:Block|Layer)_\d{1,4})$")


def kind_of(name: str, *, is_label: bool) -> int:
    """Return what a host event marks; only labels of users and modules (``is_label``) name layers."""
    if name.startswith(_ENGINE):
        return BACKWARD
    if name in _OPERATORS or pattern_of(name) is not None:
        return OPERATOR
    return LABEL if is_label and (_SHARDED.match(name) or layer_of(name)) else NOTHING


def pattern_of(name: str) -> str | None:
    """Return the fusion that an operation of the host carries out, None for any other.

    >>> pattern_of("symm_mem::fused_all_gather_scaled_matmul"), pattern_of("aten::mm")
    ('all-gather-matmul', None)
    """
    return next((pattern for pattern, spelled in _FUSED if spelled.search(name)), None)


def layer_of(name: str) -> str | None:
    """Return the layer that a label names, None where it names none.

    >>> layer_of("FSDP::all_gather (model.layers.3)"), layer_of("nn.Module: LlamaDecoderLayer_3"), layer_of("## forward ##")
    ('layers.3', 'LlamaDecoderLayer_3', None)
    """
    named = _MODULE.match(name) if name.startswith(MODULE) else _LAYER.search(name)
    return named[1] if named else None


class LaunchMarks:
    """The labels of a file, for the question what holds a launch."""

    def __init__(self, rank_file: RankFile) -> None:
        self._file = rank_file
        self._spans = Spans(rank_file.marks)
        self._layers: list[str | None] = [layer_of(name) for name in rank_file.names]

    def layer(self, thread: int | None, moment: float | None) -> str | None:
        """Return the innermost layer that holds a launch."""
        return next((name for number in self._around(thread, moment) if (name := self._layers[number])), None)

    def role(self, thread: int | None, moment: float | None) -> str | None:
        """Return ``fsdp`` for what was launched to shard or unshard parameters, else None."""
        names = self._file.names
        return FSDP if any(_SHARDED.match(names[number]) for number in self._around(thread, moment)) else None

    def _around(self, thread: int | None, moment: float | None) -> list[int]:
        if thread is None or moment is None:
            return []
        return [self._file.marks.name[number] for number in self._spans.around(thread, moment)]

    def rows(self, zero: int) -> list[Row]:
        """Return rows of kind ``operator``: fused operations, gradients, data parallel forward passes; and per thread from
        when to when it was in a backward pass.
        """
        file, table = self._file, self._file.operators
        made: list[Row] = []
        for start, dur, name, thread, line in zip(
            table.ts, table.dur, table.name, table.thread, table.line, strict=True
        ):
            text = file.names[name]
            op = _OPERATORS.get(text) or pattern_of(text)
            if op is not None:
                row: Row = {"op": op, "start_s": (start - zero) * 1e-6, "duration_s": dur * 1e-6, "line": line}
                made.append(row | {"text": text, "thread": thread, "layer": self.layer(thread, start)})
        for thread, (first, last, line) in file.backward.items():
            row = {"op": "backward", "start_s": (first - zero) * 1e-6, "duration_s": (last - first) * 1e-6}
            made.append(row | {"line": line, "thread": thread})
        for row in made:
            tid = file.threads[row["thread"]][1]
            row |= {"kind": "operator", "thread": tid if type(tid) is int and abs(tid) < 1 << 62 else None}
        return made
