"""How alike two texts are: `catalogue` lists the similarities, `setting` says what counts as the same solution."""
