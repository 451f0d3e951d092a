"""A switch that adds inside the kernel: its program in C, what loads it, and what says who may send."""
