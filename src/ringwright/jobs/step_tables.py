"""Measured training steps from tables: one row per configuration, with its model, its parallel form and its time.

Two kinds of table are read: columns of this project's own names (``COLUMNS``), and those of Megatron-Bridge's performance summary
(tokens a second and GPU), of which rows of models that are not known here are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringwright.formats.sources.tables.csv_rows import csv_rows
from ringwright.ground.errors import InputError
from ringwright.workloads.parallel import Parallel, parse

TIMES = {"iteration_ms": 1e-3, "iteration_s": 1.0, "Tokens / sec / GPU": 0.0}
COLUMNS = (
    "name the columns: model, or hidden, heads and layers; sequence, global_batch, micro_batch; gpus, tensor_parallel, "
    "pipeline_parallel; iteration_ms or iteration_s"
)
GPT_WORDS = 51200  # the 50,257 of GPT-2, filled up as a cut over 8 ranks needs
# Models by their printed names (arXiv 2205.05198, table 3); the interleaved schedule has 3 chunks a stage where it is used.
PRINTED = {
    "Megatron 22B": {"hidden": 6144, "heads": 64, "layers": 48, "sequence": 2048},
    "GPT-3 175B": {"hidden": 12288, "heads": 96, "layers": 96, "sequence": 2048, "virtual_pipeline": 3},
    "Turing 530B": {"hidden": 20480, "heads": 128, "layers": 105, "sequence": 2048, "virtual_pipeline": 3},
    "Megatron 1T": {"hidden": 25600, "heads": 160, "layers": 128, "sequence": 2048},
}
# device -> fabric of {n} nodes of 8 or {r} racks of 72, calibration of its links, fit. Four HDR cards a node, each for two GPUs,
# are 12.5 GB/s a GPU.
SYSTEMS = {
    "a100": ("dgx-a100:{n},nic_rate=100Gb/s,layout=switch", "a100-nvswitch", "a100-megatron"),
    "h100": ("dgx-h100:{n},layout=switch", "", "h100-megatron"),
    "b200": ("dgx-b200:{n},layout=switch", "", "blackwell-megatron"),
    "b300": ("dgx-b200:{n},layout=switch", "", "blackwell-ultra-megatron"),
    "gb200": ("gb200-nvl72:{r},layout=switch", "", "blackwell-megatron"),
    "gb300": ("gb200-nvl72:{r},layout=switch", "", "blackwell-ultra-megatron"),
}
BRIDGE_MODELS = {
    "LLAMA3_8B": "llama3-8b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA3.1_405B": "llama3-405b",
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
}
# What their recipes overlap (scripts/performance/configs there): Llama's gathers and scatters of tensor parallelism, but in NVFP4
# (``tp_comm_overlap``); exchanges of experts (``moe_a2a_overlap``) on some devices, since a release.
BRIDGE_TP = ("llama3-70b", "llama3-405b")
BRIDGE_EP = {
    ("qwen3-235b-a22b", "h100"): "",
    ("deepseek-v3", "b200"): "26.04.01",
    **{("deepseek-v3", system): "26.06" for system in ("gb200", "gb300")},
    **{("gpt-oss-120b", system): "26.06" for system in ("b300", "gb200", "gb300")},
}
BRIDGE_NAMES = {
    "#-GPUs": "gpus",
    "GBS": "global_batch",
    "MBS": "micro_batch",
    "Sequence Length": "sequence",
    "TP": "tensor_parallel",
    "PP": "pipeline_parallel",
    "CP": "context_parallel",
    "VP": "virtual_pipeline",
    "EP": "expert_parallel",
    "FSDP": "fsdp",
}
YES = ("1", "1.0", "yes", "true", "on")
NO = ("0", "0.0", "no", "false", "off", "n/a", "none")
OVERLAPPED = ("tp", "ep")
ABSENT = ("", "n/a", "0", None)


@dataclass(frozen=True)
class MeasuredStep:
    """One measured step, in ``seconds``.

    ``dims`` changes the model's dimensions; ``half`` is "fit" or "test"; ``label`` names the row among those of its ``table``.
    ``overlap``: roles whose exchanges run beside compute (``condensed_workload``).
    """

    table: str
    label: str
    half: str
    seconds: float
    model: str
    dims: Mapping[str, int]
    gpus: int
    parallel: str
    micro_batches: int
    micro_batch_size: int
    sequence: int
    dtype: str
    gradients: str
    recompute: str
    device: str
    fabric: str
    calibration: str
    fit: str
    overlap: tuple[str, ...] = ()


def read(path: str | Path) -> list[MeasuredStep]:
    """Return the rows whose model is known here; InputError, naming the line, for a malformed row."""
    steps = []
    for line, row in enumerate(csv_rows(path), 2):
        try:
            asked = _bridge(row) if "System" in row else dict(row)
            steps += [_row(asked, half(row))] if asked else []
        except (KeyError, ValueError) as error:
            what = f"no column {error} has a value" if isinstance(error, KeyError) else str(error)
            raise InputError(what, where=f"{path}, line {line}", remedy=COLUMNS) from error
    if not steps:
        raise InputError("the table holds no row that can be asked about", where=str(path), remedy=COLUMNS)
    return steps


def half(row: Mapping[str, str]) -> str:
    """Return "fit" or "test" by a hash of the row without its time, so that the halves never move."""
    apart = (*TIMES, "scatter_gather", "overlap")  # a time, or said of a table later: the halves stay
    asked = ",".join(str(value or "") for name, value in row.items() if name not in apart and "TFLOP" not in str(name))
    return "test" if hashlib.sha256(asked.encode()).digest()[0] % 2 else "fit"


def _bridge(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row of Megatron-Bridge's table under this table's names; nothing for what is not known here."""
    system = row["System"].removeprefix("DGX-").lower()
    tokens = row.get("Tokens / sec / GPU") or ""
    if row["model"] not in BRIDGE_MODELS or system not in SYSTEMS or not tokens.replace(".", "").isdigit():
        return {}
    fields = {name: row[theirs] for theirs, name in BRIDGE_NAMES.items() if row.get(theirs) not in ABSENT}
    seconds = int(fields["global_batch"]) * int(fields["sequence"]) / (float(tokens) * int(fields["gpus"]))
    dtype = row["Precision"].lower()
    model = BRIDGE_MODELS[row["model"]]
    tp = model in BRIDGE_TP and dtype != "nvfp4"
    ep = row["nemo_release"] >= BRIDGE_EP.get((model, system), "never")
    return {
        **fields,
        "overlap": " ".join(role for role, does in (("tp", tp), ("ep", ep)) if does),
        "fsdp": "1" if "fsdp" in fields else "",  # theirs says over how many ranks
        "model": model,
        "device": system,
        "dtype": dtype,
        "gradients": "float32",
        "set": "bridge",
        "recompute": "none",
        "sequence_parallel": "1",
        "zero": "1",
        "iteration_s": repr(seconds),
        "release": row["nemo_release"],
    }


@dataclass(frozen=True)
class _Cells:
    """A row's cells, with what is known of its model by name."""

    row: Mapping[str, str]
    known: Mapping[str, int]

    def text(self, name: str, default: str) -> str:
        return (self.row.get(name) or "").strip() or default

    def flag(self, name: str) -> bool:
        """Return whether the row says yes; an empty cell says no."""
        text = self.text(name, "0").lower()
        if text not in YES + NO:
            raise ValueError(f"{name}: '{text}' is neither yes nor no (1 or 0)")
        return text in YES

    def number(self, name: str, default: int | None = None) -> int:
        text = self.text(name, str(self.known.get(name, "")))
        if not text:
            if default is None:
                raise KeyError(name)
            return default
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"{name}: '{text}' is not a number of 1 or more")
        return int(text)


def _row(row: Mapping[str, str], part: str) -> MeasuredStep:
    name = row.get("model") or ""
    known = PRINTED.get(name, {})
    cells = _Cells(row, known)
    gpt = not name or bool(known)
    sequence = cells.number("sequence")
    dims = {each: cells.number(each) for each in ("hidden", "heads", "layers")} if gpt else {}
    if gpt:
        dims |= {"positions": sequence, "vocabulary": cells.number("vocabulary", GPT_WORDS)}
    gpus, parallel, replicas = _parallel(cells)
    batch, size = cells.number("global_batch"), cells.number("micro_batch")
    if batch % (replicas * size):
        raise ValueError(
            f"a global batch of {batch} cannot be shared out over {replicas} replicas in micro-batches of {size}"
        )
    device = cells.text("device", "a100").lower()
    fabric, calibration, fit = SYSTEMS.get(device, ("", "", ""))
    nodes, racks = -(-gpus // 8), -(-gpus // 72)
    recompute = cells.text("recompute", "full").partition(" ")[0]
    overlap = _overlap(cells.text("overlap", ""), parse(parallel, gpus))
    return MeasuredStep(
        cells.text("set", name or "table"),
        " ".join(
            (name or _size(dims), parallel, f"{batch}/{size}", recompute, *(f"{each} overlapped" for each in overlap))
        ),
        part,
        _seconds(row),
        "gpt3-175b" if gpt else name,
        dims,
        gpus,
        parallel,
        batch // (replicas * size),
        size,
        sequence,
        cells.text("dtype", "float16"),
        cells.text("gradients", "float16"),
        recompute,
        device,
        cells.text("fabric", fabric.format(n=nodes, r=racks)),
        cells.text("calibration", calibration),
        cells.text("fit", fit),
        overlap,
    )


def _overlap(text: str, parallel: Parallel) -> tuple[str, ...]:
    """Return which exchanges of a row overlap, of those that its parallel form has."""
    roles = text.split()
    unknown = [role for role in roles if role not in OVERLAPPED]
    if unknown:
        raise ValueError(f"overlap: '{unknown[0]}' is none of {', '.join(OVERLAPPED)}")
    return tuple(role for role in OVERLAPPED if role in roles and getattr(parallel, role) > 1)


def _parallel(cells: _Cells) -> tuple[int, str, int]:
    """Return GPUs, the parallel form, and how many replicas share a batch."""
    gpus, tp, pp = cells.number("gpus"), cells.number("tensor_parallel", 1), cells.number("pipeline_parallel", 1)
    context, ep, vp = (
        cells.number("context_parallel", 1),
        cells.number("expert_parallel", 1),
        cells.number("virtual_pipeline", 1),
    )
    dp = cells.number("data_parallel", max(1, gpus // (tp * pp * context)))
    if tp * pp * context * dp != gpus:
        raise ValueError(f"tp{tp} x pp{pp} x cp{context} x dp{dp} is {tp * pp * context * dp}, not {gpus} GPUs")
    sp = tp > 1 and (cells.flag("sequence_parallel") or "sequence" in cells.text("recompute", ""))
    sg = tp > 1 and pp > 1 and not sp and cells.flag("scatter_gather")
    words = [f"tp{tp}", f"pp{pp}", f"dp{dp}", *(["sp"] if sp else []), *(["sg"] if sg else [])]
    words += [
        f"{axis}{ranks}" for axis, ranks in (("vp", vp if pp > 1 else 1), ("cp", context), ("ep", ep)) if ranks > 1
    ]
    zero = "3" if cells.flag("fsdp") else cells.text("zero", "")
    return gpus, ",".join([*words, *([f"zero{zero}"] if zero and dp > 1 else [])]), dp


def _size(dims: Mapping[str, int]) -> str:
    return f"gpt {dims['hidden']}x{dims['layers']}"


def _seconds(row: Mapping[str, str]) -> float:
    for name, unit_s in TIMES.items():
        if row.get(name):
            seconds = float(row[name]) * unit_s
            if not 0 < seconds < 1e6:
                raise ValueError(f"{name}: {row[name]} is no time of a step")
            return seconds
    raise KeyError("iteration_ms")
