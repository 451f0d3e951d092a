"""What the simulated steps say of the paper's conclusions: a row each, kind and tolerance set before the first run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ringwright_lab.papers.figures.kinds import FORM, IDENTITY, PREDICTION
from ringwright_lab.papers.poster.conclusions import BUFFERS, EFFECTS, HEALTHY, ConclusionAnswer, PacketCheck
from ringwright_lab.papers.poster.figures import PAPER, ExperimentRow, row

HPN = "Alibaba HPN, SIGCOMM 2024, section 9.3, case study 1: LLaMa-7B on 256 GPUs, one NIC-ToR link of a dual-ToR pair fails"
GO_BACK_N = "Error Recovery of RDMA Packets in Data Center Networks (ICCCN 2019), abstract: nearly zero above 1 % loss"
DROP, DROP_TOLERANCE = 0.0625, 0.25  # of throughput; inputs that are assumed, as docs/how-to/reproduce.md has it
FEW_MODELS = 3  # fewer, as in the short form, have no order that could differ
NEARLY_ZERO = 0.1  # of the throughput without loss
AT_LEAST, CLOSE = 0.05, 1.005  # a step that differs; two that do not
APART, ALIKE = 0.1, 0.25  # slow-downs that differ between models; packets beside events


def rows(
    answers: Sequence[ConclusionAnswer], checks: Sequence[PacketCheck], drop: float | None, throughput: float | None
) -> list[ExperimentRow]:
    """Return the rows; ``drop`` and ``throughput`` are what the two published cases gave here."""
    return [
        *_orders(answers),
        *_slowdowns(answers),
        _programs(answers),
        *_packets(checks),
        row(
            "loss of training throughput with one of a NIC's two links down",
            DROP,
            drop,
            f"{DROP_TOLERANCE:.0%}",
            HPN,
            good=drop is not None and abs(drop / DROP - 1) <= DROP_TOLERANCE,
            note="assumed: rail-optimised:32, that NIC at half of its rate, the simple form that is fastest here, H100",
            kind=PREDICTION,
        ),
        row(
            "throughput of go-back-N (RoCE) at 1 % loss over that without",
            "nearly zero",
            throughput,
            f"at most {NEARLY_ZERO:g}",
            GO_BACK_N,
            good=throughput is not None and throughput <= NEARLY_ZERO,
            note="the claim has no number: a band of this package's own",
        ),
    ]


def order(answers: Sequence[ConclusionAnswer], model: str, disturbance: str) -> list[str]:
    """Return the topologies of a model by step, the fastest first; those without an answer are left out."""
    mine = {
        each["fabric"]: each["step_us"]
        for each in answers
        if each["model"] == model
        and each["disturbance"] == disturbance
        and not each["algorithm"]
        and each["step_us"] is not None
    }
    return sorted(mine, key=lambda name: (mine[name], name))


def _models(answers: Sequence[ConclusionAnswer]) -> list[str]:
    return list(dict.fromkeys(each["model"] for each in answers))


def _orders(answers: Sequence[ConclusionAnswer]) -> list[ExperimentRow]:
    """Return whether the order of topologies, and the fastest, depend on the model and on a disturbance."""
    models = _models(answers)
    if len(models) < FEW_MODELS:
        return []
    healthy = {model: order(answers, model, HEALTHY) for model in models}
    fastest = {each[0] for each in healthy.values() if each}
    orders = {tuple(each) for each in healthy.values()}
    changed = [
        f"{model} under {name}"
        for model in models
        for name in (*EFFECTS, BUFFERS)
        if (disturbed := order(answers, model, name)) and len(disturbed) == len(healthy[model]) != 0
        if disturbed != healthy[model]
    ]
    best = "; ".join(f"{model}: {each[0] if each else 'none'}" for model, each in healthy.items())
    return [
        row(
            "the fastest topology depends on the model",
            "topologies are to be chosen per workload",
            f"{len(fastest)} different ones for {len(models)} models",
            "2 or more",
            PAPER,
            good=len(fastest) > 1,
            note=best,
        ),
        row(
            "the order of all topologies depends on the model",
            "topologies are to be chosen per workload",
            f"{len(orders)} different orders for {len(models)} models",
            "2 or more",
            PAPER,
            good=len(orders) > 1,
        ),
        row(
            "a disturbance changes the order of topologies",
            "choose with network anomalies in view",
            f"{len(changed)} of {len(models) * (len(EFFECTS) + 1)}",
            "1 or more",
            PAPER,
            good=bool(changed),
            note="; ".join(changed)[:600],
        ),
    ]


def _slowdowns(answers: Sequence[ConclusionAnswer]) -> list[ExperimentRow]:
    """Return by how much slow-downs differ between models, and that nothing gets faster by a disturbance."""
    told = []
    disturbed = [each for each in answers if each["disturbance"] != HEALTHY and each["slowdown"] is not None]
    for name in (*EFFECTS, BUFFERS):
        spread = 0.0
        where = ""
        for spelled in dict.fromkeys(each["fabric"] for each in disturbed):
            mine = {
                each["model"]: each["slowdown"]
                for each in disturbed
                if each["fabric"] == spelled and each["disturbance"] == name
            }
            for one, other in combinations(mine, 2):
                apart = abs((mine[one] or 0) - (mine[other] or 0))
                if apart > spread:
                    spread, where = apart, f"{spelled}: {one} {mine[one]:.3f}, {other} {mine[other]:.3f}"
        told.append(
            row(
                f"{name}: slow-down of the step differs by model on one topology",
                "anomalies hit models differently",
                round(spread, 4),
                f"{APART:g} or more between two models",
                PAPER,
                good=spread >= APART,
                note=where,
            )
        )
    fast = [each for each in disturbed if (each["slowdown"] or 1.0) < 1 / CLOSE]
    told.append(
        row(
            "no disturbance makes a step faster",
            0,
            len(fast),
            f"none by more than {CLOSE - 1:.1%}",
            "a law of this package",
            good=not fast,
            note="; ".join(f"{each['model']} on {each['fabric']}, {each['disturbance']}" for each in fast)[:600],
            kind=IDENTITY,
        )
    )
    return told


def _programs(answers: Sequence[ConclusionAnswer]) -> ExperimentRow:
    """Return whether another program than the library's choice makes a step shorter anywhere."""
    gains = []
    own = {(each["model"], each["fabric"]): each["step_us"] for each in answers if _is_default(each)}
    for each in answers:
        usual = own.get((each["model"], each["fabric"]))
        if each["algorithm"] and each["step_us"] and usual:
            gains.append((usual / each["step_us"] - 1, f"{each['model']} on {each['fabric']} by {each['algorithm']}"))
    best = max(gains, default=(0.0, ""))
    ahead = {where.rpartition(" by ")[0] for gain, where in gains if gain >= AT_LEAST}
    return row(
        "a step is shorter by the best known program than by the library's choice (largest gain)",
        "collective frameworks are to be rethought",
        round(best[0], 4),
        f"{AT_LEAST:g} or more somewhere",
        PAPER,
        good=best[0] >= AT_LEAST,
        note=f"{best[1]}; {len(ahead)} of {len(own)} pairs gain {AT_LEAST:.0%} or more",
    )


def _is_default(each: ConclusionAnswer) -> bool:
    return each["disturbance"] == HEALTHY and not each["algorithm"] and each["step_us"] is not None


def _packets(checks: Sequence[PacketCheck]) -> list[ExperimentRow]:
    """Return how near the slow-downs of condensed steps by packets are to those by events, for losses and for rates."""
    told = []
    for losses in (True, False):
        mine = [each for each in checks if ("loss" in each["disturbance"]) == losses]
        ratios = [each["ratio"] for each in mine if each["ratio"] is not None]
        near = [each for each in ratios if abs(each - 1) <= ALIKE]
        told.append(
            row(
                f"{'losses' if losses else 'rates'}: slow-down by packets over slow-down by events, of drawn steps",
                1,
                f"{len(near)} of {len(mine)} within {ALIKE:.0%}"
                + (f", {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""),
                f"three of four within {ALIKE:.0%}",
                "requirement of this package",
                good=bool(mine) and len(near) >= 0.75 * len(mine),
                note="; ".join(
                    f"{each['model']} on {each['fabric']}, {each['disturbance']}: "
                    + (f"{each['ratio']:.2f}" if each["ratio"] is not None else each["why"])
                    for each in mine
                ),
                kind=FORM,
            )
        )
    return told
