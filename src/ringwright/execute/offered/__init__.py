"""The executors on offer, one file each: an ``EXECUTOR`` says over what messages go and who starts the ranks."""
