"""Cost models: times, bounds, calibrations, GPUs and NCCL's own choices. Several rooms use them."""
