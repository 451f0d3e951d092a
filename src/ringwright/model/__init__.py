"""Model: the nouns, what makes them legal, and what they mean.

In: nothing but `ground`. Out: Collective, Program, Topology, Workload and Trace, which every other room takes and gives;
`validity`, the rules of each; `interpreter`, what a Program does to real data; `registry`, which system has which name.
Start reading: `collective`, `program`, `topology`, `workload`, `trace`, in this order; then `interpreter`.
"""
