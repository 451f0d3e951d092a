"""Whole jobs: what a step takes on a fabric by each policy, from a model card or a recording."""
