"""Cost models: what links, GPUs, libraries and tasks take, calibrated or learnt, and NCCL's own choices.

In: sizes, links, releases and measured tables. Out: seconds and choices that engines and schedulers ask for; no program is run.
Start reading: `link_models`; `nccl.selection`, what NCCL would choose; `learnt`, intervals from open tables.
"""
