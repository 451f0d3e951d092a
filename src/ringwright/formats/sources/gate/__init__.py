"""The way in: archives, compressed files, streams and pipes become whole files, and what could not be read is counted."""
