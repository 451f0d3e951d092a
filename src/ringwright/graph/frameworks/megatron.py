"""The flags of Megatron-LM for the settings of a job: which flag says what.

Source: NVIDIA/Megatron-LM ``megatron/training/arguments.py`` (0.12).
"""

from __future__ import annotations

SIZES = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "vp": "--num-virtual-stages-per-pipeline-rank",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
}
SWITCHES = {
    "sp": "--sequence-parallel",
    "overlap_gradients": "--overlap-grad-reduce",
    "overlap_parameters": "--overlap-param-gather",
    "overlap_tensor": "--tp-comm-overlap",
}
SHARED_STATES = "--use-distributed-optimizer"  # zero1
SHARDED = "--use-torch-fsdp2"  # fsdp, which overlaps by itself
WHOLE_OUTPUTS = "--no-scatter-gather-tensors-in-pipeline"  # where stages send no parts
EXPERT_TP = "--expert-tensor-parallel-size"
GRANULARITY = "--recompute-granularity"
BUCKET = "--ddp-bucket-size"
MICRO_BATCH = "--micro-batch-size"
GLOBAL_BATCH = "--global-batch-size"
GPUS = "# GPUs: "
