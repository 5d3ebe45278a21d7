"""Samples: their types, reading, writing, importing and grading."""
