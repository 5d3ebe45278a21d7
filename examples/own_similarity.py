"""A similarity of your own: of all numbers in two texts, the share that is in both.

    quatro eval similarity examples/own_benchmark/samples.jsonl --similarity examples.own_similarity:numbers
    quatro eval ucc examples/own_benchmark/samples.jsonl --similarity examples.own_similarity:numbers --threshold 0.9

So two solutions in different words are the same if their numbers are, and different if their intermediate results are.
`--similarity embed:MODEL` compares the embeddings of a language model instead (docs/similarity.md).
"""

import re
from collections.abc import Sequence


def numbers(texts: Sequence[str]) -> list[list[float]]:
    """A row and a column for each text: 1 on the diagonal, the same both ways, between 0 and 1."""
    found = [frozenset(re.findall(r"\d+(?:\.\d+)?", text)) for text in texts]
    return [[len(one & other) / len(one | other) if one | other else 1.0 for other in found] for one in found]
