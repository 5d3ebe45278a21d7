"""One iteration of Algorithm 1: draw, grade, learn, audit. `quatro/train.py` calls what is here."""
