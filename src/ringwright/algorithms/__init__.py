"""Algorithms: ``(collective, topology, **knobs) -> Program``. The folder listing is the registry."""
