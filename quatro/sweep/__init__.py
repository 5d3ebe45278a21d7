"""Many runs from one grid, each a process of its own: planned, run, measured and read again. Imports no torch."""
