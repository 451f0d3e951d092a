"""Advice: what to change in a job, by how much, and how sure that is. Settings of all layers are tried together, not added."""
