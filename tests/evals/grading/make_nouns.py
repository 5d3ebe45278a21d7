"""Write the words of evals/grading/nouns.txt, which are English nouns, from two Debian packages; its head stays.

    apt-get download wordnet-base wamerican
    for package in *.deb; do dpkg-deb -x $package unpacked; done
    python tests/evals/grading/make_nouns.py unpacked

Made from wordnet-base 1:3.0-37 and wamerican 2020.12.07-2. A noun of WordNet is kept if its own corpus has it, or if it
names a thing and the word list has it; the exceptions are below.
"""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from attacks import STOP_WORDS, WORDS


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


# Lexicographer files of things: animal, artifact, group, quantity...; acts, attributes, feelings and states are none.
THINGS = _words("05 06 08 11 13 14 15 17 18 20 21 23 24 25 27 28")
QUANTITY = "23"
# Whatever lies below one of these names a number: 5 quadrillion.
NUMBERS = ("integer", "fraction", "large_integer", "ordinal_number")
# More multipliers, and words that are something else behind a number: 5 right, 5 log, 5 mil (thousand in Spanish).
LEFT_OUT = _words("""
    jillion zillion gazillion quadrillionth quintillionth trillionth threescore percent nay elf googol googolplex
    grand giga mega mil mille brace ream twin trio duo quartet quintet sextet septet octet nonet duet dyad triad
    tetrad pentad couplet fold quintuple sextuple naught billionth millionth unknown mod modulus root base power
    exponent inverse opposite remainder log sin cos tan max min lim mode sign infinity void nil null mine mean
    means name side part top bottom front system bill fire interest detail amount answer call estimate guess
    guessing move show half quarter quarters second seconds sept fast fun well media pas barring binary despite
    divide duodecimal hex invalid let make past remains save sub till
""")
# Left out above or a closed word, but not in the plural.
PLURALS = _words("""
    answers amounts bases bills calls details exponents fires fronts inverses logs mines modes moves names
    opposites parts powers remainders roots sides signs sins systems tops twins
""")
# Other words that name acts, that are adjectives more often, or that name numbers are left out.
ALSO_NOUNS = _words("""
    binomial chestnut civilian constant diagonal digit fraction handshake human integer integral juvenile local
    mammoth musical native newborn number parallel permutation plum prime professional radical rival variable
""")


def nouns(folder: Path) -> list[str]:
    """The nouns and the irregular plurals of them; regular plurals are left to the reader."""
    wordnet = folder / "usr/share/wordnet"
    known = set((folder / "usr/share/dict/american-english").read_text(encoding="utf-8").split())
    synsets, below = {}, defaultdict(list)
    for line in _lines(wordnet / "data.noun"):
        fields = line.split()
        width = int(fields[3], 16)
        synsets[fields[0]] = (fields[1], frozenset(fields[4 : 4 + 2 * width : 2]))
        for offset in re.findall(r" @i? (\d{8}) n", line.split("|")[0]):
            below[offset].append(fields[0])
    senses = {line.split()[0]: re.findall(r"\b\d{8}\b", line) for line in _lines(wordnet / "index.noun")}
    waiting, numerals = [offset for name in NUMBERS for offset in senses[name][:1]], set()
    while waiting:
        numerals |= synsets[offset := waiting.pop()][1]
        waiting += below[offset]
    uses: dict[str, Counter[str]] = defaultdict(Counter)
    for line in _lines(wordnet / "cntlist.rev"):
        lemma, key, count = re.match(r"(.*)%(\d):\S+ \d+ (\d+)", line).groups()  # type: ignore[union-attr]
        uses[lemma]["noun" if key == "1" else "verb" if key == "2" else "adjective"] += int(count)
    found = set()
    for word, offsets in senses.items():
        files = [synsets[offset][0] for offset in offsets if word in synsets[offset][1]]  # not names: Paris
        is_thing = QUANTITY in files or (word in known and not THINGS.isdisjoint(files))
        is_doing = word.endswith("ing") and files[:1] and files[0] not in THINGS
        is_noun = not is_doing and uses[word]["noun"] >= uses[word]["adjective"]
        if re.fullmatch("[a-z]{3,}", word) and is_noun and files and (is_thing or uses[word]["noun"]):
            found.add(word)
    left_out = (numerals | LEFT_OUT | set(STOP_WORDS) | set(WORDS)) - ALSO_NOUNS
    found = (found | ALSO_NOUNS) - left_out
    found |= {f"{word.removesuffix('man')}men" for word in found if word.endswith("man") and word != "human"}
    for plural, *singular in map(str.split, _lines(wordnet / "noun.exc")):
        if re.fullmatch("[a-z]{3,}", plural) and not found.isdisjoint(singular):
            found.add(plural)
    return sorted(found - left_out | PLURALS)


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(" ")]


if __name__ == "__main__":
    table = Path(__file__).parents[3] / "evals/grading/nouns.txt"
    head = [line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    table.write_text("\n".join([*head, *nouns(Path(sys.argv[1]))]) + "\n", encoding="utf-8")
