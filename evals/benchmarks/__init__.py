"""The benchmarks: which there are, their problems and prompts, and where they come from."""
