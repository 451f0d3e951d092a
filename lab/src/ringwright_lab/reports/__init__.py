"""What the verbs of this package print and draw."""
