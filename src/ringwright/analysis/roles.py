"""What each communicator is for: tensor, data, pipeline or expert parallel; by launch arguments, members and traffic."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Degrees = dict[str, int | None]


@dataclass
class Roles:
    """``of``: communicator -> (role, evidence); ``degrees``: tp, pp, dp, ep; ``confidence`` in roles that phases tell of."""

    of: dict[int, tuple[str, str]] = field(default_factory=dict)
    degrees: Degrees = field(default_factory=lambda: dict.fromkeys(("tp", "pp", "dp", "ep")))
    confidence: dict[int, float] = field(default_factory=dict)


def _replicas(tp: int | None, pp: int | None, world: int | None) -> int | None:
    return world // (tp * pp) if world and tp and pp and world % (tp * pp) == 0 else None


def infer(
    communicators: list[dict[str, Any]], launch: dict[str, int], ops: dict[int, set[str]], world: int | None
) -> Roles:
    """Return roles. ``ops`` maps a communicator to the operations seen on it; ``launch`` holds degrees that were printed.

    A role that the recording states is taken as it is; as soon as one is stated, nothing is inferred for the others.
    """
    stated = {comm["communicator"]: comm for comm in communicators if comm.get("role")}
    if stated:
        return _stated(stated, launch, world)
    roles = Roles()
    experts = {comm["communicator"]: comm["size"] for comm in communicators if _is_expert(comm, ops, world)}
    roles.of |= dict.fromkeys(experts, ("ep", "only all-to-all"))
    families = _families([comm for comm in communicators if comm["communicator"] not in experts])
    chain = _chain_stride(families, ops)
    tp = launch.get("tp") or _tensor_degree(families, world)
    pp = launch.get("pp") or _chain_length(families, chain, world)
    dp = launch.get("dp", None if "cp" in launch else _replicas(tp, pp, world))
    for (size, stride), members in families.items():
        role, evidence = _role(size, stride, members, tp, pp, dp, chain, ops, world)
        if role:
            roles.of |= dict.fromkeys(members, (role, evidence))
    sizes = {comm["communicator"]: comm["size"] for comm in communicators}
    dp = dp or _degree("dp", roles, sizes)
    pp = pp or _degree("pp", roles, sizes)
    if any(role in ("tp", "pp", "dp", "ep") for role, _ in roles.of.values()) and world:
        tp, pp, dp = complete(tp, pp, dp, world)
    roles.degrees = {"tp": tp, "pp": pp, "dp": dp, "ep": launch.get("ep") or _degree("ep", roles, sizes)}
    return roles


def _stated(communicators: dict[int, dict[str, Any]], launch: dict[str, int], world: int | None) -> Roles:
    """Return the roles that the recording states, and degrees from the groups of one role alone (``dp-cp`` counts as dp)."""
    roles = Roles({n: (comm["role"], comm["role_evidence"] or "stated") for n, comm in communicators.items()})
    plain = Roles({n: ("dp" if role == "dp-cp" else role, why) for n, (role, why) in roles.of.items()})
    sizes = {number: comm["size"] or 1 for number, comm in communicators.items()}
    tp, pp, dp, ep = (launch.get(name) or _degree(name, plain, sizes) for name in ("tp", "pp", "dp", "ep"))
    if world:
        tp, pp, dp = complete(tp, pp, dp, world)
    roles.degrees = {"tp": tp, "pp": pp, "dp": dp, "ep": ep}
    return roles


def _is_expert(comm: dict[str, Any], ops: dict[int, set[str]], world: int | None) -> bool:
    return comm["size"] > 1 and comm["size"] != world and _expert_like(ops.get(comm["communicator"], set()))


def _degree(role: str, roles: Roles, sizes: dict[int, int]) -> int | None:
    """Return the size of the communicators of a role, the largest where they differ."""
    return max((sizes[number] for number, (its_role, _) in roles.of.items() if its_role == role), default=None)


def complete(tp: int | None, pp: int | None, dp: int | None, world: int) -> tuple[int | None, int | None, int | None]:
    """A degree without a communicator is 1 when the others make up the world."""
    known = 1
    for degree in (tp, pp, dp):
        known *= degree or 1
    return (tp or 1, pp or 1, dp or 1) if known == world else (tp, pp, dp)


def _families(communicators: list[dict[str, Any]]) -> dict[tuple[int, int], list[int]]:
    """Group communicators by (size, stride between members); stride 0 stands for irregular, -1 for unknown."""
    families: dict[tuple[int, int], list[int]] = defaultdict(list)
    for comm in communicators:
        members = comm["members"]
        if comm["size"] < 2:
            continue
        if any(rank < 0 for rank in members):
            families[comm["size"], -1].append(comm["communicator"])
            continue
        steps = {after - before for before, after in itertools.pairwise(members)}
        stride = steps.pop() if len(steps) == 1 else 0
        families[comm["size"], stride].append(comm["communicator"])
    return dict(families)


def _tensor_degree(families: dict[tuple[int, int], list[int]], world: int | None) -> int | None:
    """Consecutive ranks in groups that tile the world."""
    sizes = [
        size
        for (size, stride), members in families.items()
        if stride == 1 and world is not None and size < world and len(members) >= max(1, world // size)
    ]
    return max(sizes, default=None)


def _expert_like(talk: set[str]) -> bool:
    return "all-to-all" in talk and not talk & {"all-reduce", "reduce-scatter", "all-gather"}


def _chain_stride(families: dict[tuple[int, int], list[int]], ops: dict[int, set[str]]) -> int | None:
    """The stride of pairs that only send and receive; else of the pairs that are most, as neighbours in a pipeline are.

    Pairs that were seen at work and never sent to each other are no neighbours, however many they are.
    """
    pairs = {stride: members for (size, stride), members in families.items() if size == 2 and stride > 0}
    talk = {stride: set[str]().union(*(ops.get(number, set()) for number in pairs[stride])) for stride in pairs}
    for stride, members in pairs.items():
        if len(members) > 1 and talk[stride] and talk[stride] <= {"send", "recv"}:
            return stride
    may_be = [stride for stride in pairs if not talk[stride] or talk[stride] & {"send", "recv"}]
    if not may_be or len(pairs) < 2:
        return None
    stride = max(may_be, key=lambda stride: (len(pairs[stride]), -stride))
    return stride if len(pairs[stride]) >= 2 else None


def _chain_length(families: dict[tuple[int, int], list[int]], stride: int | None, world: int | None) -> int | None:
    if any(size > 2 and step == stride for size, step in families):
        return max(size for size, step in families if step == stride and size > 2)
    return world // stride if world and stride and world % stride == 0 else None


# branches: a rule for each kind of group, of which the first that holds decides
def _role(
    size: int,
    stride: int,
    members: list[int],
    tp: int | None,
    pp: int | None,
    dp: int | None,
    chain: int | None,
    ops: dict[int, set[str]],
    world: int | None,
) -> tuple[str, str]:
    talk = set().union(*(ops.get(number, set()) for number in members))
    where = f"{len(members)} of size {size}, stride {stride}" if stride > 0 else f"{len(members)} of size {size}"
    if size == world:
        return "world", where
    if stride == 1 and size == tp:
        return "tp", f"{where}: consecutive ranks"
    if size == 2 and chain is not None and stride == chain:
        return "pp", f"{where}: neighbours of a pipeline"
    if size == 2 and chain is not None and stride > chain and (pp is None or stride == chain * (pp - 1)):
        return "embedding", f"{where}: first and last stage, tied embeddings"
    if pp is not None and size == pp and stride > 1 and (chain in (None, stride) or dp in (None, 1)):
        if talk and not talk & {"send", "recv"} and dp == size and stride == (tp or 1):
            return "dp", f"{where}: one per tensor rank"
        return "pp", f"{where}: one rank per stage"
    return _strided_role(size, stride, talk, tp, where)


def _strided_role(size: int, stride: int, talk: set[str], tp: int | None, where: str) -> tuple[str, str]:
    if talk & {"send", "recv"} and not talk & {"all-reduce", "reduce-scatter", "all-gather"}:
        return "pp", f"{where}; only send and receive"
    if stride == (tp or 1) and stride > 0:
        return "dp", f"{where}: replicas of one tensor rank"
    if "all-to-all" in talk:
        return "ep", f"{where}; all-to-all"
    if stride > (tp or 1) and talk & {"all-reduce", "reduce-scatter"}:
        return "dp", f"{where}; gradient-like operations"
    return "", ""
