"""Published systems, one paper a file."""
