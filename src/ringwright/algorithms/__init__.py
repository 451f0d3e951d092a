"""Ways to do a collective: building blocks, published algorithms, whole libraries."""
