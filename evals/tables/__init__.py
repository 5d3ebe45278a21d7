"""Tables of results: as text, CSV and LaTeX."""
