"""Aggregation in InfiniBand switches, one system a file."""
