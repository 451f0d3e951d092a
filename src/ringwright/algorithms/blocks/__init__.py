"""Building blocks: the classic algorithms, one a file, from which the others are made."""
