"""How a run begins, is saved and goes on."""
