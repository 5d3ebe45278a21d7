"""Samples of benchmarks, drawn from a model or a run and measured: `quatro sample`. Imports no torch."""
