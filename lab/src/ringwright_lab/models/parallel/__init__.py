"""Ways to spread a model over ranks, one file each."""
