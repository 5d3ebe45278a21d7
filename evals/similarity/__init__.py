"""How alike two texts are: `catalogue` lists the similarities, and the settings of what counts as the same solution."""
