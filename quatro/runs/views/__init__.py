"""What is shown of runs and sweeps: read from their folders, never written there. Nothing on disk imports this."""
