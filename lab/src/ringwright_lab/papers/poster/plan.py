"""What is run: which models in which forms, which sizes for the shapes of requests, which disturbances on which network.

The short form is for minutes, the full one for a night. The rule on shapes was made on the grid points of ``MADE_ON``; it
is judged on others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringwright_lab.sweep.grid import Grid, grid_of, legal
from ringwright_lab.sweep.point import GridPoint

FAMILIES = ("deepseek-v3", "gpt2", "llama", "bert", "resnet", "vgg", "mixtral")
FORMS = ("ddp:dp=2", "fsdp:dp=2", "tp:tp=2", "ep:ep=2,capacity=64", "tp+fsdp:tp=2,dp=2")
WIDE = ("ddp:dp=4", "fsdp:dp=4", "tp:tp=4", "ep:ep=4,capacity=64")
MODES = ("training", "lora", "head", "inference")
SHORT = (
    ("llama", "ddp:dp=2", "training"),
    ("gpt2", "ddp:dp=2", "training"),
    ("bert", "ddp:dp=2", "training"),
    ("vgg", "ddp:dp=2", "training"),
    ("resnet", "ddp:dp=2", "training"),
    ("llama", "fsdp:dp=2", "training"),
    ("llama", "tp:tp=2", "training"),
    ("llama", "tp:tp=2", "inference"),
    ("deepseek-v3", "tp:tp=2", "inference"),
    ("mixtral", "ep:ep=2,capacity=64", "training"),
    ("llama", "ddp:dp=2", "head"),
)
FABRIC = "switch:4,rate=100Mb/s"
ANOMALIES = {
    "bandwidth": "link rank3 rate 20%",
    "loss": "link rank3 loss 1%",
    "flap": "link rank3 flap 300ms every 2s",
    "straggler": "rank 3 slow 16x",
    "traffic": "flow 1>2",
}
MODELS = {
    "llama": "layers=4",
    "vgg": "",
    "resnet": "",
}  # of the anomalies: one of each shape, about a megabyte of gradients
HEAVY: dict[str, dict[str, Any]] = {"llama": {"batch": 4, "sequence": 64}, "vgg": {"batch": 32}, "resnet": {"batch": 8}}
SEEDS = (1, 2, 3, 4, 5)


def agreement(*, short: bool) -> Grid:
    """Return grid points on real ranks, each with its twin on the fake group."""
    if short:
        real = legal(GridPoint(model, parallel=form, mode=mode, steps=4) for model, form, mode in SHORT)
        real += legal([GridPoint("llama", parallel="pp:pp=2", micro_batches=2)])
    else:
        real = grid_of({"model": FAMILIES, "parallel": FORMS, "mode": MODES}, {"steps": 4})
        real += grid_of({"model": FAMILIES, "parallel": WIDE, "mode": ["training", "inference"]}, {"steps": 4})
        real += grid_of({"model": ["llama", "gpt2"], "parallel": ["ddp:dp=2"], "batch": [1, 4], "sequence": [16, 64]})
        staged: dict[str, Any] = {
            "model": ["llama", "mixtral", "deepseek-v3"],
            "dims": ["layers=4"],
            "batch": [4],
            "mode": ["training", "inference"],
        }
        real += grid_of({**staged, "parallel": ["pp:pp=2", "pp:pp=4"], "micro_batches": [4]})
    return real + legal(replace(point, world=point.ranks) for point in real.points)


def served() -> tuple[GridPoint, ...]:
    """Return DeepSeek-V3 at its full size on 16 ranks: a prompt of 1,024 tokens, and tokens after it, of one sequence."""
    point = GridPoint(
        "deepseek-v3",
        "deepseek-v3",
        parallel="tp:tp=16",
        mode="inference",
        batch=1,
        sequence=1024,
        dtype="bfloat16",
        steps=2,
        world=16,
    )
    return (point,)


MADE_ON = (("vgg", "vgg-11"), ("resnet", "resnet-18"), ("gpt2", "gpt2-small"))
TRUE_SHAPE = {"vgg": "VGG-like", "resnet": "ResNet-like"}  # the others are transformers


def shapes(*, short: bool) -> Grid:
    """Return runs that the rule on request shapes was not made on: other models, sizes, widths and forms."""
    fake: dict[str, Any] = {"steps": 3, "batch": 1, "sequence": 64}
    points = [
        GridPoint("bert", "bert-base", parallel="ddp:dp=8", world=8, **fake),
        GridPoint("bert", "bert-base", parallel="tp:tp=4", world=4, **fake),
        GridPoint("vgg", "vgg-11", dims="width=96", parallel="fsdp:dp=8", world=8, **fake),
        GridPoint("resnet", "resnet-18", dims="width=96", parallel="ddp:dp=8", world=8, bucket_cap_mb=10.0, **fake),
        GridPoint("vgg", dims="width=16,linear=1024", parallel="ddp:dp=2", bucket_cap_mb=0.2, steps=3),
        GridPoint("resnet", dims="width=24", parallel="ddp:dp=2", bucket_cap_mb=0.5, steps=3),
        GridPoint("llama", dims="layers=6", parallel="fsdp:dp=2", steps=3),
        GridPoint("mixtral", dims="layers=4", parallel="tp:tp=2", steps=3),
    ]
    if not short:
        points += [
            GridPoint("llama", "llama3-8b", parallel="tp+fsdp:tp=8,dp=8", world=64, **fake),
            GridPoint("mixtral", "mixtral-8x7b", parallel="tp:tp=8", world=8, **fake),
            GridPoint("bert", "bert-large", parallel="fsdp:dp=16", world=16, **fake),
            GridPoint("gpt2", "gpt2-medium", parallel="fsdp:dp=8", world=8, **fake),
            GridPoint("vgg", "vgg-11", dims="width=32,linear=2048", parallel="ddp:dp=4", world=4, **fake),
            GridPoint("resnet", "resnet-18", dims="width=128", parallel="fsdp:dp=4", world=4, **fake),
            GridPoint("gpt2", dims="layers=6", parallel="ddp:dp=2", bucket_cap_mb=0.5, steps=3),
            GridPoint("bert", dims="layers=6", parallel="ddp:dp=4", bucket_cap_mb=0.5, steps=3),
            GridPoint("deepseek-v3", dims="layers=6", parallel="fsdp:dp=2", steps=3),
            GridPoint("vgg", dims="width=12,linear=768", parallel="fsdp:dp=4", steps=3),
            GridPoint("resnet", dims="width=32", parallel="fsdp:dp=4", steps=3),
        ]
    return legal(points)


def scale(*, short: bool) -> Grid:
    """Return Llama-70B, tensor parallel in eights inside fully sharded, from 128 ranks on."""
    worlds = (128,) if short else (128, 1024, 8192, 65536)
    return legal(
        GridPoint(
            "llama",
            "llama3-70b",
            parallel=f"tp+fsdp:tp=8,dp={world // 8}",
            world=world,
            batch=1,
            sequence=4096,
            dtype="bfloat16",
            steps=1,
            warm=0,
        )
        for world in worlds
    )


def disturbed(*, short: bool) -> Grid:
    """Return the grid points of every disturbance and of the same job undisturbed, on real ranks in network namespaces."""
    models = {"llama": MODELS["llama"]} if short else MODELS
    faults = ("bandwidth", "flap") if short else tuple(name for name in ANOMALIES if name != "straggler")
    points = []
    for seed in SEEDS[:3] if short else SEEDS:
        for model, dims in models.items():
            base = GridPoint(
                model, dims=dims, parallel="ddp:dp=4", bucket_cap_mb=0.5, steps=16, warm=4, fabric=FABRIC, seed=seed
            )
            points += [base, *(replace(base, fault=ANOMALIES[name]) for name in faults)]
            # A rank that computes slowly shows where computing is not hidden behind the wire: more of it, and one bucket.
            heavy = replace(base, bucket_cap_mb=None, **HEAVY[model])
            points += [] if short else [heavy, replace(heavy, fault=ANOMALIES["straggler"])]
    return legal(points)
