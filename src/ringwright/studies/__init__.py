"""Studies: what joins rooms. Simulations over sizes and algorithms, measurements against them, training steps, sweeps."""
