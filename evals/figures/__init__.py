"""Figures, one file each, and the style that they share."""
