"""MVAPICH2's two-level and multi-leader collectives and the rules by which it sizes them."""
