"""Which similarity finds what counts as another solution? Two sets of right answers whose labels need no people."""
