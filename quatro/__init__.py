"""QUATRO: query-adaptive trust-region policy optimisation for language models."""

__version__ = "0.1.0"
