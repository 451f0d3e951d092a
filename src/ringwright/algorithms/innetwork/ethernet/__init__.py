"""Aggregation on Ethernet: in switches, in servers beside them, in servers on the way."""
