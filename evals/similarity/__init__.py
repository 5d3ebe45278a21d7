"""How alike two texts are."""
