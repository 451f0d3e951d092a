"""Algorithms: ``(collective, topology, **knobs) -> Program``. The folder listing is the registry.

In: a Collective and a Topology. Out: a Program, checked elsewhere (`model.validity`). A file in `blocks`, `published`,
`libraries`, `synthesis` or `innetwork` is a system; what several share stands beside these folders.
Start reading: `blocks.ring`, then `published.blueconnect`; `compose`, how one is made of others.
"""
