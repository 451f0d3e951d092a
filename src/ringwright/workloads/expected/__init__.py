"""What a parallel form must issue, in closed form from the dimensions of a card: which operations, how often, how large."""
