"""Why a step takes what it takes: what is exposed, what stands in the way, and which knob would move it."""
