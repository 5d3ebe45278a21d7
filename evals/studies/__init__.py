"""What can be asked of samples beside their metrics."""
