"""TriRace: dense gradients, sparse rows and messages between stages share links, and are scheduled together by their deadlines.

Idea: In an asynchronous pipeline with replicas, what stages hand on is due at once, sparse rows before they are looked up again,
    and dense gradients at the swap of the weight's versions, a batch later (PipeDream-2BW). So messages go first, then the rows
    that are due, then gradients by ascending slack, then other rows. Gradients go in blocks, and nothing starts while another
    class uses its link, so that a message waits for one block at most.
Cost: All-reduce 2 (D - 1) alpha + 2 (D - 1) / D n beta; a batch takes the longer of its work and the busiest link's sum of times.
Knobs: ``block_mb`` (0: the smallest power of two that keeps 95 % of the rate) MiB of gradients or rows at a time;
    ``exclusive`` (true): a message waits for the block on its link, else shares it; ``rows`` (sparse): the role of payloads that
    are sparse rows.
Holds: Who waits for whom stays, so the weights are the same to the bit; one order on all ranks of a group; classes on links of
    their own do not wait for each other.
Figure: 1.07 to 1.45 times faster than PipeDream-2BW and Megatron (unconfirmed: the abstract at hand breaks off before it).
Source: Li et al., IEEE TPDS 35(8), 2024, doi 10.1109/TPDS.2024.3406420.
Declines: Jobs without messages between pipeline stages, or without gradients that replicas add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ringwright.ground.errors import WorkloadError
from ringwright.ground.knobs import Mebibytes, Role
from ringwright.ground.units import MIB
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Gate, Payload, Queue, Rewrite, Workload
from ringwright.schedulers.order import GRADIENTS
from ringwright.schedulers.search import threshold

NEEDS = ("workload.gradients", "workload.pipeline")
MESSAGES, SUMS = 1, 2  # classes of traffic; 0 is what is not scheduled
TIED = ("embedding",)  # the matrix that the first and the last stage share
KEPT_RATE = 0.95
ClassTimes = tuple[dict[str, float], dict[str, float], float]  # first start and last end of each task; a step of work
PROBED = 1 << 20  # bytes of what shows which links a class uses
IN_PRACTICE = (
    "in practice: groups of their own for pipeline and data parallelism, Megatron-LM --high-priority-stream-groups pp "
    "--ddp-bucket-size, --overlap-grad-reduce"
)


def multidimensional_scheduling(
    workload: Workload, costs: Costs, *, block_mb: Mebibytes = 0.0, exclusive: bool = True, rows: Role = "sparse"
) -> Workload:
    """Return the workload with its three classes by deadline, in blocks, and apart where they share a link."""
    messages = [each for each in workload.payloads if each.op == "send-recv"]
    dense, tied, sparse = (_summed(workload, roles) for roles in (GRADIENTS, TIED, (rows,)))
    if not messages or not dense:
        lacking = "stages that send to each other" if not messages else "gradients that replicas add up once a step"
        raise WorkloadError(
            f"multidimensional-scheduling: there are no {lacking}",
            where=workload.name,
            remedy="pipeline and data parallelism: --parallel ...,pp4,dp2",
        )
    dense += tied
    roles = tuple(dict.fromkeys(each.role for each in (*dense, *sparse)))
    shared = any(
        _share_links(workload, costs, one, other) for one in _kinds(messages) for other in _kinds([*dense, *sparse])
    )
    traffic = {**dict.fromkeys((each.role for each in messages), MESSAGES), **dict.fromkeys(roles, SUMS)}
    gates: tuple[Gate, ...] = (Gate(SUMS, SUMS), Gate(SUMS, SUMS, "running")) if len(roles) > 1 else ()
    if shared:
        gates += (Gate(SUMS, MESSAGES), Gate(SUMS, MESSAGES, "running"))
        gates += (Gate(MESSAGES, SUMS, "running"),) if exclusive else ()
    return workload.saying("multidimensional-scheduling", *_said(workload, costs, shared=shared)).with_policy(
        "multidimensional-scheduling",
        rewrites=(
            Rewrite("partition", roles, {"size_bytes": round(block_mb * MIB) or block_bytes(workload, costs, dense)}),
        ),
        queue=Queue(keys=urgencies(workload, costs, dense, sparse), traffic=traffic, gates=gates),
        boundary="layer",
        agreement="static",
    )


def _summed(workload: Workload, roles: tuple[str, ...]) -> list[Payload]:
    return [each for each in workload.gradients(roles) if workload.mesh.extent(each.axes) > 1]


def block_bytes(workload: Workload, costs: Costs, dense: Iterable[Payload]) -> int:
    """Return the smallest block, a power of two from 1 MiB, that is sent at 95 % of the rate of the largest gradient."""
    largest = max(dense, key=lambda each: each.size_bytes)
    ranks = workload.group(largest.of, largest.axes)

    def rate(size_bytes: int) -> float:
        took = seconds(costs, largest.asked, size_bytes, ranks, largest.role)
        return size_bytes / took if took else float("inf")

    blocks = [MIB << at for at in range(largest.size_bytes.bit_length()) if MIB << at < largest.size_bytes]
    whole = rate(largest.size_bytes)
    return threshold([*blocks, largest.size_bytes], lambda size_bytes: rate(size_bytes) >= KEPT_RATE * whole)


def urgencies(
    workload: Workload, costs: Costs, dense: Iterable[Payload], sparse: Iterable[Payload] = ()
) -> dict[str, int]:
    """Return the order of the sums: rows due at the next look-up, dense gradients by ascending slack, other rows by slack."""
    dense, sparse = tuple(dense), tuple(sparse)
    times = {of: _times(workload, of) for of in {each.of for each in (*dense, *sparse)}}
    slack = {each.name: _slack_s(workload, costs, each, times[each.of]) for each in (*dense, *sparse)}
    rows = sorted(sparse, key=lambda each: slack[each.name])
    soonest = min((_due(workload, each) for each in rows), default=0)
    prior = [each for each in rows if _due(workload, each) == soonest]
    listed = [*prior, *sorted(dense, key=lambda each: slack[each.name]), *(each for each in rows if each not in prior)]
    return {each.name: at for at, each in enumerate(listed)}


# ------------------------------------------------------------------------------------------------------------- deadlines
def slack_s(workload: Workload, costs: Costs, payload: Payload) -> float:
    """Return how long a payload may wait: from its release to its deadline, less its own time, in seconds of steady work."""
    return _slack_s(workload, costs, payload, _times(workload, payload.of))


def _slack_s(workload: Workload, costs: Costs, payload: Payload, times: ClassTimes) -> float:
    starts, ends, batch_s = times
    released = max((ends[name] for name in payload.producers if name in ends), default=0.0)
    due = [starts[name] + distance * batch_s for name, distance in _users(workload, payload) if name in starts]
    took = seconds(costs, payload.asked, payload.size_bytes, workload.group(payload.of, payload.axes), payload.role)
    return min(due, default=float("inf")) - released - took


def _times(workload: Workload, of: str) -> ClassTimes:
    """Return when each task of a class first starts and last ends in a step of nothing but work, and how long that is."""
    line = [name for name, _ in workload.line(of)]
    line += [each.name for each in workload.tasks if each.of == of and each.per == "step" and each.kind != "U"]
    starts, ends, now = dict[str, float](), dict[str, float](), 0.0
    for name in line:
        starts.setdefault(name, now)
        now += workload.task[name].seconds
        ends[name] = now
    return starts, ends, now


def _users(workload: Workload, payload: Payload) -> Iterator[tuple[str, int]]:
    """Yield who needs a payload, and how many steps later: through the update, those who read what it writes."""
    for name, distance in payload.consumers:
        if workload.task[name].kind == "U":
            yield from ((edge.dst, distance + edge.distance) for edge in workload.edges if edge.src == name)
        else:
            yield name, distance


def _due(workload: Workload, payload: Payload) -> int:
    return min((distance for _, distance in _users(workload, payload)), default=0)


# ----------------------------------------------------------------------------------------------------------------- links
def link_seconds(workload: Workload, costs: Costs) -> dict[tuple[object, ...], float]:
    """Return for how many seconds of a step each link is busy: the sum over what uses it of its time and its share."""
    busy: dict[tuple[object, ...], float] = defaultdict(float)
    for payload in workload.payloads:
        times = workload.micro_batches if payload.per == "micro-batch" else 1
        for resource, wire_s in _used(workload, costs, payload, payload.size_bytes):
            busy[resource] += wire_s * times
    return dict(busy)


def _used(
    workload: Workload, costs: Costs, payload: Payload, size_bytes: int
) -> Iterator[tuple[tuple[object, ...], float]]:
    """Yield the links of an operation of the first ranks of its class, and how many seconds of each it takes."""
    ranks = _ranks(workload, payload)
    for stage in costs.stages(payload.asked, size_bytes, ranks, payload.role):
        yield from ((("link", link), stage.wire_s * share) for link, share in stage.links)
        for at, rank in enumerate(ranks):
            for name, share in stage.loads:
                wrong = ".rx" if at == 0 else ".tx"
                if payload.op != "send-recv" or not name.endswith(wrong):
                    yield (rank, name), stage.wire_s * share


def _ranks(workload: Workload, payload: Payload) -> tuple[int, ...]:
    if payload.op != "send-recv":
        return workload.group(payload.of, payload.axes)
    first = workload.group(payload.of, ())[0]
    peer = next(each for each in workload.classes if each.name == payload.peer)
    return first, workload.mesh.rank({**workload.mesh.place(first), **peer.at})


def _share_links(workload: Workload, costs: Costs, one: Payload, other: Payload) -> bool:
    mine, theirs = ({link for link, wire_s in _used(workload, costs, each, PROBED) if wire_s} for each in (one, other))
    return not mine.isdisjoint(theirs)


def _kinds(payloads: Iterable[Payload]) -> list[Payload]:
    """Return one payload of each kind: class, peer, operation and group."""
    return list({(each.of, each.peer, each.asked, each.axes): each for each in payloads}.values())


def _said(workload: Workload, costs: Costs, *, shared: bool) -> list[str]:
    work_s = max(_times(workload, each.name)[2] for each in workload.classes)
    busy_s = max(link_seconds(workload, costs).values(), default=0.0)
    fits = "gradients can hide" if busy_s <= work_s else "so a batch takes no less"
    told = f"the busiest link is used for {busy_s * 1e3:,.4g} ms of a batch, whose work takes {work_s * 1e3:,.4g} ms: {fits}"
    apart = "messages and sums share a link and do not use it together" if shared else "messages and sums share no link"
    return [told, apart, IN_PRACTICE]
