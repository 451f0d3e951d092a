"""Reports: a summary object in, text or a page out. Nothing here computes a figure that the analysis did not give."""
