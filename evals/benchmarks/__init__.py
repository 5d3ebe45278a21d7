"""The benchmarks: their registry, their problems and prompts, and how they are fetched."""
