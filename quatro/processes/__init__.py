"""Processes: ranks, the launcher that started them, and requests to stop."""
