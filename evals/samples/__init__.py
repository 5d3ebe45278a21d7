"""Samples: their records, reading, writing, importing, and the grade on each."""
