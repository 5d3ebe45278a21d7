"""From graded samples to numbers: counts, Pass@k and UCC@k, comparisons, flips."""
