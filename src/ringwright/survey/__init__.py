"""What is held, system by system: what it is, its knobs, what it was seen to do."""
