"""The processes of a run: ranks that train together, the launcher that started them, and requests to stop."""
