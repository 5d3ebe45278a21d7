"""The page that `quatro report` writes."""
