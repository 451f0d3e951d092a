"""From a Trace to frames and plain objects; nothing here prints or draws."""
