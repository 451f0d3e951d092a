"""NCCL's own choices on a fabric, as rules of the tuners that read a file: a start for rules of one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
from ringwright.algorithms.libraries.nccl_2_4.forcing import forced
from ringwright.algorithms.libraries.nccl_2_4.system import system_of
from ringwright.costs.nccl import TunerRule, rules_from_choices, sweep
from ringwright.costs.nccl.per_rank import aligned, per_rank_rules
from ringwright.formats.settings.nccl_tuner_csv import nccl_tuner_csv
from ringwright.formats.settings.rccl_tuner_csv import rccl_tuner_csv
from ringwright.formats.settings.torchcomms_tuner import torchcomms_tuner
from ringwright.model.registry import algorithm

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec

EXPORTS = {"nccl-tuner-csv": "tuner", "rccl-tuner-csv": "rccl", "torchcomms-tuner-json": "torchcomms"}
SIZES = tuple(1 << power for power in range(3, 34))


def tuner(question: SimulationSpec, spelling: str) -> bytes:
    """Return the CSV's bytes; ``spelling`` may name a release, as nccl-2-4@2.20.5."""
    return nccl_tuner_csv(_rules(question, spelling))


def rccl(question: SimulationSpec, spelling: str) -> bytes:
    """Return the CSV's bytes for RCCL; the choices are those of NCCL's model."""
    return rccl_tuner_csv(_rules(question, spelling))


def torchcomms(question: SimulationSpec, spelling: str) -> bytes:
    """Return the JSON's bytes for NCCLX, with the ends of sizes at whole bytes of a rank."""
    return torchcomms_tuner(per_rank_rules(aligned(_rules(question, spelling))))


def _rules(question: SimulationSpec, spelling: str) -> list[TunerRule]:
    """Return the choices of a release by size, with what the spelling forces; UsageError where the release has none such."""
    _, _, knobs = algorithm(spelling)
    release = str(knobs.get("release") or NEWEST)
    system = system_of(question.collective(0), question.topology)
    held = {name: knobs.get(name) for name in ("algorithm", "protocol", "channels")}
    choices = sweep(question.op, SIZES, system, release)
    if any(held.values()):
        choices = [forced(choice, system, release, **held) for choice in choices]
    if held["channels"]:
        choices = [replace(choice, channels=held["channels"]) for choice in choices]
    return rules_from_choices(choices)
