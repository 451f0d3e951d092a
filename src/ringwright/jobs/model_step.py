"""A model by its name, as the Workload of one step."""

from __future__ import annotations

from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.workload import Workload


# parameters: they are what a model and its parallel form leave open, each by its name
def job(
    model: str,
    gpus: int | None = None,
    parallel: str | None = None,
    *,
    gpu: str = "h100",
    micro_batches: int | None = None,
    micro_batch_size: int | None = None,
    seq: int | None = None,
    dtype: str | None = None,
    gradients: str | None = None,
    recompute: str = "none",
    mode: str = "training",
    schedule: str = "1f1b",
    stages: str = "",
) -> Workload:
    """Return one step of training or serving a model, as a Workload: compute times, and what its ranks exchange.

    Parameters
    ----------
    model
        ``vgg16``, ``resnet50``, ``bert-large``, ``gpt3-175b``, ``llama3-70b``, ``mixtral-8x7b``, ``deepseek-v3`` ...
    gpus
        Number of GPUs; data parallelism takes what the parallel form leaves. Usual: as many as the form needs.
    parallel
        Words such as ``tp8,pp16,dp128,sp,vp2,cp2,ep8,zero1,fsdp``. Usual: data parallel.
    gpu
        The device that computes: ``a100``, ``h100``, ``b200`` ... The fabric that the job is later put on does not change it.
    micro_batches, micro_batch_size, seq
        Micro-batches of a step, sequences (or images) in one, tokens in a sequence.
    dtype, gradients
        Element types of parameters and activations (usual: bfloat16, of images float32) and of gradients (float32).
    recompute
        ``none``, ``selective``, ``selective-op`` or ``full``.
    mode
        ``training``, ``prefill`` or ``decode``.
    schedule
        Of a pipeline: ``1f1b`` or ``gpipe``.
    stages
        Layers of each pipeline stage, listed by hand: ``10,11,11``. Usual: even, else balanced by their operations.

    Returns
    -------
    Workload
        Times in seconds, sizes in bytes; ``assumptions`` names every default that was taken.

    Raises
    ------
    UsageError
        No such model or device, or a parallel form that does not fit it.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.job("llama3-8b", gpus=16, parallel="tp8")
    Workload(llama3-8b training, 16 ranks, 1 classes, 366 tasks, 424 payloads, policy none)
    """
    card = WorkloadSpec(
        model, gpus, parallel, micro_batches, micro_batch_size, seq, dtype, gradients, recompute, mode, stages=stages
    )
    return workload(GeneratedJobSpec(card, gpu, schedule=schedule))
