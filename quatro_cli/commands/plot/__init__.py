"""The commands of `quatro plot`."""
