"""Studies: what joins rooms. The list of systems, simulations over sizes and algorithms, conformance."""
