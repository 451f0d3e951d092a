"""Bounds: what no program, no network and no measurement can be better than.

In: a Collective and a Topology, or numbers that a source gave. Out: lower bounds on time with the cut or the tree that proves
them, and the laws that a recorded number must pass between its source and an output.
Start reading: `lower_bounds`, then `cuts`; `laws` for recorded numbers.
"""
