"""What can be set, layer by layer: one file each, with one function that lists settings or says why there are none."""
