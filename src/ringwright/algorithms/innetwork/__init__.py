"""Systems that add in the network: `(collective, topology, **knobs) -> Program`. The folder listing is the registry."""
