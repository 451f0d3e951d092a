"""The verbs, in the order of ``--help``: which group each belongs to, and what it does in one line."""

from __future__ import annotations

GROUPS = {
    "Record": {
        "run": "Record a job: run -- torchrun train.py, nothing changed.",
        "plugin": "Plug-ins for NCCL, built here: one records, one follows a table.",
        "live": "A running job: its growing files, refreshed in place.",
        "doctor": "Why do I see nothing? Settings, files, remedies.",
    },
    "Understand": {
        "summary": "One screen: operations, sizes, communicators, findings.",
        "report": "One self-contained HTML page.",
        "diff": "What changed between two runs.",
        "check": "A gate for CI: thresholds per operation and size class.",
        "query": "SQL over the tables.",
        "serve": "Reports, timelines and what-ifs on one local page.",
        "read": "Which kind of recording is this?",
        "convert": "Parquet, CSV or JSON lines; redacted on demand.",
    },
    "Predict": {
        "simulate": "How long a collective or a step takes on a fabric, with faults.",
        "advise": "What to change in a job, by how much, and how sure that is.",
        "provision": "The least network that keeps a step, simulated at its edge.",
        "bound": "What no algorithm can beat, and the cut that proves it.",
        "synthesise": "The fastest program for a machine, with its bound.",
        "library": "What a library would choose, size by size.",
        "workload": "What a model makes its ranks say, before it runs.",
        "survey": "The survey's 45 systems, and what each does for a job.",
        "calibrate": "Link numbers of a system from nccl-tests tables.",
        "export": "Algorithms, rules and fabrics as files of other systems.",
        "list": "What can be named: fabrics, models, policies, GPUs, faults ...",
    },
    "Run and prove": {
        "bench": "Collectives on real ranks, beside the libraries' own.",
        "sweep": "Real models in every parallel form, recorded and compared.",
        "switch": "A switch that adds: sums packets of workers, without root.",
        "lab": "Real ranks on a network of namespaces, with faults.",
        "accuracy": "Simulated times beside measured tables: error, intervals.",
        "compare": "A benchmark beside its simulation, error by error.",
        "verify": "Is this MSCCL XML or MSCCL++ JSON program legal?",
        "systems": "Every algorithm and library, and what it has shown.",
        "reproduce": "Is the paper right? Its claim beside what we measure.",
    },
}
VERBS = {verb: sentence for group in GROUPS.values() for verb, sentence in group.items()}
