"""From samples with grades to numbers: counts, estimates, comparisons."""
