"""Collective communication profiling: real runs of model workloads beside what the closed formulas say beforehand.

Idea: Every collective of a real job is recorded with what it belongs to: operations, counts, sizes of requests, bursts. Models,
    forms of parallelism and numbers of nodes are varied, and the network is disturbed while they run.
Figure: none that could be read; each row of the experiment names where its claim is from.
Source: Gupta, Li, Banka, Cohen, Sridhar, Yavatkar, poster at NSDI 2025, arXiv 2507.07117.
"""

from __future__ import annotations

SLUG = "collective-profiling-poster"
NEEDS = ("trace.events", "trace.events.duration_s")
