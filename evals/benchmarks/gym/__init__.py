"""Tasks of the library reasoning-gym: their items, and the scores that its checkers give."""
