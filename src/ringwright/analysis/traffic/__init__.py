"""Transfers of a network: their bursts, who sends to whom, and bytes over time."""
