"""Engines: how long a Program takes on a Topology. What they receive are arguments; they choose nothing themselves.

In: a Program or a Workload, a Topology, and who arrives when. Out: a Run: times, loads, what limits it.
Start reading: `choose`, which engine a question gets; `events`; `job.run`, whole steps; `packets.run`, packet by packet.
"""
