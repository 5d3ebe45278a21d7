"""Measures what language models answer: grading, Pass@k, UCC@k, tables and figures. No torch."""
