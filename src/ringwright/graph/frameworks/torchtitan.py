"""The keys of torchtitan's TOML for the settings of a job. Source: pytorch/torchtitan ``config/job_config.py`` (0.2, of 2025)."""

from __future__ import annotations

SIZES = {
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
}
REPLICAS = "data_parallel_replicate_degree"
SHARDS = "data_parallel_shard_degree"
ASYNC_TP = "enable_async_tensor_parallel"
SCHEDULE = "pipeline_parallel_schedule"
PIPELINE_BATCH = "pipeline_parallel_microbatch_size"
SCHEDULES = {
    ("1f1b", 1): "1F1B",
    ("gpipe", 1): "GPipe",
    ("1f1b", 2): "Interleaved1F1B",
}  # with two stages a rank by itself
