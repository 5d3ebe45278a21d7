"""From samples with verdicts to numbers: counts, estimates, comparisons."""
