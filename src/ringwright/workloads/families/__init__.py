"""Model families, one file each: their sizes, and their parameters in closed form."""
