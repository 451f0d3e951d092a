"""Engines: how long a Program takes on a Topology. What they receive are arguments; they choose nothing themselves."""
