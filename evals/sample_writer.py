"""Appending to a samples file so that a crash costs at most the problem that was being written."""
