"""Methods, one file each; `METHODS` of quatro/registry.py names them."""
