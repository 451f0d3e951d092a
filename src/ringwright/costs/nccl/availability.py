"""Which combinations of algorithm and protocol a release has a cost for, which its table disables, and which it skips at a call.

Each question is answered by a sentence, or by nothing when the combination may be used.
"""

from __future__ import annotations

from ringwright.costs.nccl.bandwidth import GATHERS, nvls_graph
from ringwright.costs.nccl.constants import Constants
from ringwright.costs.nccl.graphs import NcclSystem, path_at_most

DIRECT_RANKS_MAX = 8  # local ranks of CollNet, and of NVLS outside all-reduce


def not_computed(constants: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str) -> str | None:
    """Say why the release's table holds 0.0/0.0 for a combination; None if it computes it."""
    refused = not_offered(constants, op, algorithm, protocol)
    if refused:
        return refused
    if algorithm == "pat":
        return _no_pat(system)
    if constants.rules.nvls == "efficiency" and algorithm.startswith("nvls") and system.graphs.nvls.channels < 2:
        return "NVLS needs at least two channels"
    return None


def not_offered(constants: Constants, op: str, algorithm: str, protocol: str) -> str | None:
    """Say why a release has a combination on no system at all; None if it has it on some."""
    if algorithm not in constants.base_latency_us:
        return f"NCCL {constants.release} has no {algorithm}"
    if op not in _ops(constants, algorithm):
        return f"{algorithm} does not do {op} in NCCL {constants.release}"
    if protocol != "simple" and algorithm in ("nvls", "nvls_tree", "pat"):
        return f"{algorithm} runs on Simple only"
    return None


def switched_off(constants: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str) -> str | None:
    """Say why the release's table holds bandwidth 0 for a combination that it computes; None if it does not."""
    if protocol == "ll128":
        reason = _no_ll128(constants, system, op, algorithm)
        if reason:
            return reason
    if algorithm.startswith("collnet"):
        return _no_collnet(constants, system, op, algorithm)
    if algorithm == "nvls_tree" and system.nodes == 1:
        return "NVLS-Tree needs several nodes"
    if algorithm in ("nvls", "nvls_tree") and not nvls_graph(constants, system).channels:
        return "the box has no NVLS channels"
    if algorithm == "nvls" and system.nodes > 1:
        return _no_nvls_between_nodes(constants, system, op)
    return None


def passed_over(constants: Constants, system: NcclSystem, op: str, algorithm: str) -> str | None:
    """Say why a call passes over an algorithm although the table holds a bandwidth; None if it does not."""
    if algorithm.startswith("collnet") and system.local_ranks > DIRECT_RANKS_MAX:
        return f"CollNet serves up to {DIRECT_RANKS_MAX} ranks on a node"
    if algorithm not in ("nvls", "nvls_tree"):
        return None
    if not system.nvls:
        return "NVLink SHARP is not supported"
    if op != "all-reduce" and system.local_ranks > DIRECT_RANKS_MAX:
        return f"NVLS does {op} for up to {DIRECT_RANKS_MAX} ranks on a node"
    if system.nodes > 1 and op in GATHERS and constants.rules.nvls in ("graph", "ring-graph", "slower-side"):
        return f"NVLS does {op} on one node only in NCCL {constants.release}"
    return None


def not_forced(constants: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str) -> str | None:
    """Say why a release cannot be forced to a combination; None if it can. LL128 may be forced where it is off by default."""
    reason = not_computed(constants, system, op, algorithm, protocol)
    if reason is None:
        reason = switched_off(constants, system, op, algorithm, "simple" if protocol == "ll128" else protocol)
    return reason or passed_over(constants, system, op, algorithm)


def _ops(constants: Constants, algorithm: str) -> tuple[str, ...]:
    if algorithm == "ring":
        return ("broadcast", "reduce", "all-gather", "reduce-scatter", "all-reduce")
    if algorithm == "pat":
        return GATHERS
    gathers = (algorithm == "nvls" and constants.rules.nvls != "graph") or (
        algorithm == "collnet_direct" and "gather" in constants.rules.collnet
    )
    return (*GATHERS, "all-reduce") if gathers else ("all-reduce",)


def _no_pat(system: NcclSystem) -> str | None:
    if system.nodes != system.ranks:
        return "PAT is for one GPU per node"
    if system.capability < 60:
        return "PAT needs compute capability 6.0"
    return "PAT does not run with network device offload" if system.net_offload else None


def _no_collnet(constants: Constants, system: NcclSystem, op: str, algorithm: str) -> str | None:
    if not system.collnet and constants.rules.collnet != "one":
        return "the network does not reduce"
    if constants.rules.collnet == "one" and not system.graphs.collnet_direct.channels:
        return "the network does not reduce"
    if algorithm == "collnet_direct" and not system.nvswitch and constants.rules.collnet.startswith("two"):
        return "CollNet-Direct needs an NVSwitch"
    if op in GATHERS and system.nodes > 1:
        return _no_gather(system)
    return None


def _no_gather(system: NcclSystem) -> str | None:
    if not system.collnet_gathers:
        return "the network does not gather"
    if system.local_ranks > system.collnet_heads:
        return f"{system.local_ranks} ranks on a node and {system.collnet_heads} network heads"
    return None


def _no_nvls_between_nodes(constants: Constants, system: NcclSystem, op: str) -> str | None:
    if constants.rules.nvls == "ring-graph":
        return None
    if not system.collnet:
        return "NVLS between nodes needs a network that reduces"
    checks = constants.rules.nvls in ("gather-side", "efficiency") and op in GATHERS
    return _no_gather(system) if checks else None


def _no_ll128(constants: Constants, system: NcclSystem, op: str, algorithm: str) -> str | None:
    """LL128 needs links that keep 128 bytes in order: NVLink inside, and a NIC close to the GPU."""
    graph = system.graphs.of(algorithm)
    rule = constants.rules.ll128
    far = "NVB" if rule not in ("volta-nvlink", "volta-ampere", "to-hopper-pxn") else "NVL"
    close = "PIX" if rule == "volta-nvlink" else "PXB"
    if system.capability >= 90 and rule not in ("volta-nvlink", "volta-ampere"):
        close = "PXN"
    if not path_at_most(graph.type_intra, far):
        return f"LL128 inside a node wants {far} or better, the graph has {graph.type_intra}"
    if not path_at_most(graph.type_inter, close):
        return f"LL128 between nodes wants {close} or better, the graph has {graph.type_inter}"
    if not system.same_generation and not (rule == "mixed-90" and system.capability >= 90):
        return "LL128 wants GPUs of one generation"
    if not _ll128_generation(rule, system.capability):
        return f"LL128 is not on by default for compute capability {system.capability / 10:.1f}"
    old_cuda = system.cuda.startswith("11.8") and system.capability == 90
    if old_cuda and (op, algorithm, system.ranks) == ("all-reduce", "ring", 2):
        return "CUDA 11.8 switches LL128 off for two ranks"
    return None


def _ll128_generation(rule: str, capability: int) -> bool:
    if rule in ("any-70", "mixed-90"):
        return capability >= 70
    known = {"volta-nvlink": (70,), "volta-ampere": (70, 80), "to-blackwell": (70, 80, 90, 100, 120)}
    return capability in known.get(rule, (70, 80, 90))
