"""Drawing samples of benchmarks."""
