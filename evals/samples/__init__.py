"""Samples: their records, reading, writing, importing, and the verdict on each."""
