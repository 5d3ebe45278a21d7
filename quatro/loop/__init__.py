"""One iteration of Algorithm 1: draw, judge, learn, audit."""
