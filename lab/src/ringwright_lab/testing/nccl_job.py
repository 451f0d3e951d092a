"""A job as its communicators and operations, before any text: who exists, who talks, how much, in which order.

Ranks are laid out as Megatron does without virtual stages: tensor parallel stride 1, pipeline stride tp, data
parallel stride tp x pp; expert groups are blocks of the data-parallel group. Everything follows from the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ringwright.ground.errors import UsageError
from ringwright_lab.testing.nccl_fields import ELEMENT_BYTES

BFLOAT16 = 9
FLOAT32 = 7
PER_RANK_COUNT = frozenset({"all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"})


@dataclass(frozen=True)
class Communicator:
    """An ordered group of global ranks; ``role`` is world, tp, pp, dp or ep."""

    role: str
    members: tuple[int, ...]
    split: bool = False  # made by ncclCommSplit from the world communicator

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.members)


@dataclass(frozen=True)
class NcclCall:
    """One operation of one communicator.

    ``count`` is in elements, in NCCL's convention (per rank for all-gather, reduce-scatter, all-to-all; the whole
    buffer otherwise). A ``send`` goes from communicator rank ``root`` to ``peer`` and implies the matching recv.
    """

    op: str
    communicator: int
    count: int
    datatype: int = BFLOAT16
    root: int = 0
    peer: int = -1


@dataclass(frozen=True)
class Launch:
    """Calls issued together (a group when there is more than one); ``gap_s`` passes before."""

    calls: tuple[NcclCall, ...]
    gap_s: float = 2e-5


@dataclass(frozen=True)
class TrainingLine:
    """A line that the training script prints; ``iteration`` is set on the lines that end one."""

    text: str
    iteration: int | None = None
    time_s: float | None = None


Item = Launch | TrainingLine


@dataclass
class NcclJob:
    """Everything a log is written from."""

    hosts: int
    gpus_per_host: int
    communicators: list[Communicator]
    degrees: dict[str, int | None]
    items: list[Item] = field(default_factory=list)
    seed: int = 0

    @property
    def ranks(self) -> int:
        """Number of global ranks."""
        return self.hosts * self.gpus_per_host

    def host_of(self, rank: int) -> int:
        """Return the host number of a global rank."""
        return rank // self.gpus_per_host

    def nodes_of(self, communicator: Communicator) -> int:
        """Return how many hosts a communicator spans."""
        return len({self.host_of(rank) for rank in communicator.members})

    def of_role(self, role: str) -> list[int]:
        """Return the communicators that carry a role; a degree that fills the job uses the world communicator."""
        indices = [index for index, comm in enumerate(self.communicators) if comm.role == role]
        if not indices and (self.degrees.get(role) or 1) == self.ranks:
            return [0]
        return indices


def size_of(op: str, count: int, datatype: int, nranks: int) -> int:
    """Return bytes in the size convention of nccl-tests: totals over ranks where the count is per rank."""
    return count * ELEMENT_BYTES[datatype] * (nranks if op in PER_RANK_COUNT else 1)


def make_job(
    hosts: int,
    gpus_per_host: int,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int | None = None,
    ep: int | None = None,
    split: bool = False,
    singletons: bool = False,
    seed: int = 0,
) -> NcclJob:
    """Return a job with its communicators and no operations yet.

    ``singletons`` also makes the groups of one rank that Megatron makes. Raises UsageError when the degrees do not
    multiply to the number of ranks.
    """
    ranks = hosts * gpus_per_host
    dp = ranks // (tp * pp) if dp is None else dp
    if tp * pp * dp != ranks or (ep is not None and dp % ep):
        raise UsageError(
            f"tp {tp} x pp {pp} x dp {dp} does not make {ranks} ranks, or ep {ep} does not divide dp",
            remedy="choose degrees whose product is hosts x GPUs per host",
        )
    degrees = {"tp": tp, "pp": pp, "dp": dp, "ep": ep}
    job = NcclJob(hosts, gpus_per_host, [Communicator("world", tuple(range(ranks)))], degrees, seed=seed)
    shapes = (("tp", tp, 1), ("pp", pp, tp), ("dp", dp, tp * pp), ("ep", ep or 1, tp * pp))
    for role, size, stride in shapes:
        if (size > 1 or (singletons and role != "ep")) and size < ranks:
            groups = _groups(ranks, size, stride)
            job.communicators += [Communicator(role, members, split) for members in groups]
    return job


def _groups(ranks: int, size: int, stride: int) -> list[tuple[int, ...]]:
    starts = [rank for rank in range(ranks) if (rank // stride) % size == 0]
    return [tuple(start + stride * step for step in range(size)) for start in starts]


# ------------------------------------------------------------------------------------------------- kinds of traffic
def everywhere(
    job: NcclJob, role: str, op: str, count: int, datatype: int = BFLOAT16, gap_s: float = 2e-5
) -> list[Item]:
    """Return one operation on every communicator of a role at once."""
    return [Launch((NcclCall(op, index, count, datatype),), gap_s) for index in job.of_role(role)]


def bucket_elements(kind: str, seed: int = 0) -> list[int]:
    """Return gradient bucket sizes in elements: ``vgg`` few and large, ``resnet`` many and medium, ``few`` three."""
    if kind == "few":
        return [6_553_600, 7_082_240, 1_048_576]
    if kind == "vgg":
        return [4_097_000, 16_781_312, 102_764_544, 9_220_480]
    if kind == "resnet":
        draw = random.Random(f"buckets {seed}")  # noqa: S311
        return [draw.randrange(400_000, 2_000_000, 64) for _ in range(24)]
    raise UsageError(f"no bucket list '{kind}'", remedy="choose vgg, resnet or few")


def data_parallel(job: NcclJob, kind: str) -> list[Item]:
    """Return the gradient all-reduces of one step, fp32."""
    items: list[Item] = []
    for elements in bucket_elements(kind, job.seed):
        items += everywhere(job, "dp", "all-reduce", elements, FLOAT32)
    return items


def tensor_parallel(job: NcclJob, layers: int, tokens: int, hidden: int) -> list[Item]:
    """Return two all-reduces forward and two backward per layer, ``tokens * hidden`` elements in bf16."""
    items: list[Item] = []
    for _ in range(layers * 4):
        items += everywhere(job, "tp", "all-reduce", tokens * hidden)
    return items


def sharded(job: NcclJob, layers: int, parameters: int) -> list[Item]:
    """Return FSDP's step: two all-gathers and one reduce-scatter per layer of ``parameters`` elements."""
    size = max((job.communicators[index].size for index in job.of_role("dp")), default=1)
    items: list[Item] = []
    for op in (*["all-gather"] * (2 * layers), *["reduce-scatter"] * layers):
        items += everywhere(job, "dp", op, -(-parameters // size))
    return items


def pipeline(job: NcclJob, microbatches: int, elements: int) -> list[Item]:
    """Return activations forward and gradients backward over every stage boundary."""
    items: list[Item] = []
    for _ in range(microbatches):
        for index in job.of_role("pp"):
            stages = job.communicators[index].size
            forward = [NcclCall("send", index, elements, BFLOAT16, stage, stage + 1) for stage in range(stages - 1)]
            backward = [NcclCall("send", index, elements, BFLOAT16, stage + 1, stage) for stage in range(stages - 1)]
            items += [Launch((call,)) for call in (*forward, *reversed(backward))]
    return items


def expert(job: NcclJob, layers: int, elements_per_peer: int) -> list[Item]:
    """Return dispatch and combine, forward and backward: four all-to-alls per layer."""
    items: list[Item] = []
    for _ in range(layers * 4):
        items += everywhere(job, "ep", "all-to-all", elements_per_peer)
    return items


# parameters: they are the knobs of a generated job
def training_job(
    hosts: int,
    gpus_per_host: int,
    *,
    tp: int = 1,
    pp: int = 1,
    ep: int | None = None,
    iterations: int = 4,
    buckets: str | None = "resnet",
    layers: int = 4,
    tokens: int = 1024,
    hidden: int = 4096,
    fsdp: bool = False,
    split: bool = False,
    seed: int = 0,
) -> NcclJob:
    """Return a training job whose mix follows from its degrees; ``buckets=None`` leaves data parallelism silent."""
    job = make_job(hosts, gpus_per_host, tp=tp, pp=pp, ep=ep, split=split, seed=seed)
    draw = random.Random(f"iterations {seed}")  # noqa: S311
    job.items.append(TrainingLine(_world_line(job)))
    for iteration in range(1, iterations + 1):
        step: list[Item] = []
        if tp > 1:
            step += tensor_parallel(job, layers, tokens, hidden)
        if pp > 1:
            step += pipeline(job, 2, tokens * hidden)
        if ep is not None and ep > 1:
            step += expert(job, layers, tokens * hidden // ep)
        if fsdp:
            step += sharded(job, layers, 12 * hidden * hidden)
        elif buckets is not None and (job.degrees["dp"] or 1) > 1:
            step += data_parallel(job, buckets)
        step += everywhere(job, "world", "all-reduce", 1, FLOAT32)
        time_s = 0.4 + 0.05 * draw.random() + (1.5 if iteration == 1 else 0.0)
        job.items += _spread(step, time_s)
        job.items.append(TrainingLine(_iteration_line(iteration, time_s, draw), iteration, round(time_s, 4)))
    return job


def _spread(step: list[Item], time_s: float) -> list[Item]:
    """Spend four fifths of an iteration computing, so that its traffic comes as a burst."""
    if step and isinstance(step[0], Launch):
        step[0] = Launch(step[0].calls, 0.8 * time_s)
    return step


def _world_line(job: NcclJob) -> str:
    tp, pp, dp = (job.degrees[role] for role in ("tp", "pp", "dp"))
    return (
        f"using world size: {job.ranks}, data-parallel-size: {dp}, tensor-model-parallel size: {tp}, "
        f"pipeline-model-parallel size: {pp} "
    )


def _iteration_line(iteration: int, time_s: float, draw: random.Random) -> str:
    loss = 10.8 * 0.97**iteration + 0.1 * draw.random()
    return (
        f" iteration {iteration:8d}/    1000 | consumed samples: {iteration * 16:12d} | "
        f"elapsed time per iteration (ms): {time_s * 1e3:.1f} | learning rate: 1.500E-04 | "
        f"global batch size:    16 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {draw.random():.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def deepseek_v3_inference(
    ranks: int = 16, *, prompt_tokens: int = 1024, decode_passes: int = 4, sequences: int = 1, seed: int = 0
) -> NcclJob:
    """Return DeepSeek-V3 inference with all ranks tensor parallel: one prefill pass, then decoding.

    Each forward pass makes 181 all-reduces of ``tokens * 14,336`` bytes (1 embedding, 61 attention outputs, 3 dense
    layers, 58 x 2 expert and shared outputs; bf16) and one all-gather of the logits, 129,280 x 2 / ranks bytes per
    rank and sequence. ``sequences`` decode together. Derived from the public model description.
    """
    if 129_280 % ranks:
        raise UsageError(f"{ranks} ranks do not divide the vocabulary of 129,280", remedy="choose 8, 16, 32 or 64")
    job = make_job(max(1, ranks // 8), min(ranks, 8), tp=ranks, seed=seed)
    for number in range(decode_passes + 1):
        tokens = prompt_tokens if number == 0 else sequences
        step: list[Item] = []
        for _ in range(181):
            step += everywhere(job, "world", "all-reduce", tokens * 7168)
        step += everywhere(job, "world", "all-gather", sequences * 129_280 // ranks)
        job.items += _spread(step, 0.3 if number == 0 else 0.03)
    return job
