"""The commands of `quatro eval`."""
