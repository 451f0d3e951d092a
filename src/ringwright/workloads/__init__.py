"""Workloads: what real models are made of, and the collectives that training and serving them must issue."""
