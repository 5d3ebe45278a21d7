"""Studies of samples beside their metrics: clusters, heatmaps, similarities."""
