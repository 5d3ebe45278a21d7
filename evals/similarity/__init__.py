"""How alike two texts are: `measures` has the SIMILARITIES, `setting` says what counts as the same solution."""
