"""A run on disk: its directory, checkpoints, metrics and status, and what reports and figures read of it."""
