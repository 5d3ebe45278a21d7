"""What is on disk: run folders, checkpoints, metrics."""
