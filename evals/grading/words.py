r"""Words behind a value: whether they name a unit, and what they amount to where they are plain arithmetic.

A unit is made of nouns: known units, and any word of the open classes (`5\text{ apples}`). A word of a closed class can
change what the answer says (`5\text{ or six}`, `5\text{ dozen}`), so a phrase that holds one is a unit only where the
word joins nouns: `miles per hour`, `square feet`, `cups of flour`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORD = re.compile(r"\w+")

_TO_NINE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_CARDINALS = (*_TO_NINE, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {word: value for value, word in enumerate(_CARDINALS)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_POWERS = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_MULTIPLIERS = {**_POWERS, "dozen": 12, "score": 20, "gross": 144}
_PLURAL_FRACTIONS = {"halves": 2, "quarters": 4} | {
    f"{name}s": value
    for value, name in enumerate(("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), 3)
}
_PLURAL_FRACTIONS |= {"hundredths": 100, "thousandths": 1000}
_FRACTIONS = _PLURAL_FRACTIONS | {name.removesuffix("s"): value for name, value in _PLURAL_FRACTIONS.items()}
_FRACTIONS["half"] = _FRACTIONS.pop("halve")
_RAISED = {"squared": "^{2}", "cubed": "^{3}"}
_OPERATORS = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "over": "/", "divided by": "/"}

_CLOSED_CLASSES = r"""
numbers: couple pair several many few both all half myriad lakh crore nil nought naught infinity infinite double
    triple quadruple quintuple twice thrice once single score doz dz mil mln mio mrd bil thsd hund lac
ordinals: first second last next eleventh twelfth thirteenth twentieth thirtieth hundredth thousandth millionth
    billionth former latter
operators: plus minus times over into divided multiplied added subtracted squared cubed raised power exponent
    factorial negative negated reciprocal inverse inverted opposite modulo modulus mod base root remainder divide
    multiply subtract add sub decreased increased reduced halved doubled tripled xor equals equal unequal
bases and scales: based binary ternary quaternary quinary senary octal hex hexadecimal duodecimal unary mille
    permille permil thou reckoned
negations: not no nor neither never none nobody nothing nowhere cannot non nope nay wrong incorrect false untrue
    invalid impossible undefined unknown un except excluding without unless lacking barring save anti
comparatives: more less fewer lesser greater smaller larger bigger higher lower better worse most least fewest
    greatest smallest largest maximum minimum upward upwards downward downwards above below beyond under beneath
    exceeding ahead another other others else same such similar further extra additional remaining
hedges: about approx approximate around circa near maybe perhaps probable likely unlikely uncertain unsure sure
    guess guessed guesses guessing estimate estimated ish somewhat almost quite rather nigh exact precise rounded
    truncated assume assumed assuming suppose supposed
connectives: and or but yet so if iff then than that because since although though while whereas however otherwise
    therefore thus hence moreover instead until till when whenever where wherever whether lest provided besides also
    too either alternatively respectively versus vs again namely meanwhile nevertheless whereby wherein whereupon
    whereafter thence thereafter thereby therein thereupon whence whither hereafter hereby herein hereupon anyhow
    anyway etc eg ie viz
prepositions: across after against along amid among amongst amoungst as at atop before behind beside between by
    concerning despite down due during for from in inside like of off on onto out outside past per regarding round
    through throughout thru to toward towards underneath up upon via with within beforehand away aside apart
    together back
determiners: a an the this these those some any each every enough own only alone whole full empty certain various
    much little which whichever what whatever whose
pronouns: i you he she it we they me him her us them my your his its our their mine yours hers ours theirs myself
    yourself himself herself itself ourselves yourselves themselves who whom whoever someone somebody something
    anyone anybody anything everyone everybody everything noone oneself there here elsewhere everywhere anywhere
    somewhere how why
auxiliaries: is are was were be been being am do does did done doing have has had having can could may might must
    shall should will would ought isnt arent wasnt werent dont doesnt didnt cant couldnt hasnt havent wont wouldnt
    become becomes became becoming seem seems seemed seeming remain remains mean means meant denote denotes call
    called name named say says said see seen show shows shown find finds found get gets got give gives go goes gone
    keep kept make makes made move put take takes taken describe fill cry please let lets yields choose answer
adverbs: ever always often sometimes sometime somehow still already now just even very afterwards indeed well
    anymore
without plural: top bottom front side part amount detail fire bill mill interest system thick thin serious sincere
    co con de inc ltd re
"""
# The words of other languages that say more than a unit, where they are no English nouns.
_FOREIGN_CLOSED = frozenset(
    _WORD.findall(
        """
        oder und nicht kein keine weder noch mehr weniger mindestens höchstens etwa ungefähr rund fast nur ohne
        außer bis mal hoch halb halbe doppelt dutzend paar hundert tausend millionen milliarde milliarden eins
        zwei drei vier fünf sechs sieben acht neun zehn elf zwölf vielleicht falsch fois ou et pas ni moins
        environ presque sauf sans jamais aucun demi demie deux trois quatre cinq sept huit neuf dix onze douze
        millier milliers douzaine centaine peut être faux y más mas menos casi sin excepto nunca ningún veces
        vez medio media docena dos tres cuatro cinco seis siete ocho nueve diez doce cien ciento quizás quizá
        falso aproximadamente oppure più piu quasi senza mai volte mezzo mezza dozzina tre quattro cinque sette
        otto nove dieci cento forse não nao nem sem vezes meio meia dúzia dois três quatro oito dez cem mil
        talvez или и не ни нет более менее больше меньше около почти примерно кроме без раз раза половина пол
        дюжина дюжин два две три четыре пять шесть семь восемь девять десять сто тысяча тысячи тысяч миллион
        миллионов минус плюс квадрат куб возможно неверно ложь процентов процент
        이상 이하 미만 초과 또는 혹은 아니 배 백 천 만 억
        반 쌍 다스 약 정도 대략
        """
    )
)
# Numbers, comparatives, negations and connectives of Chinese and Japanese; a square or cubic unit begins with a power.
_HAN_CLOSED = frozenset(
    "一二三四五六七八九十百千万萬亿億兆零〇半两兩双雙對对打倍成割折之或和與与及又不非无無没沒未否以上下多余餘約约近超"
    "過过至最于於第负負正加减減乘除几幾数數各每左右前后後错錯假等"
)
_HAN_POWER = re.compile(r"^(?:平方|立方|千(?=[米克瓦卡]))(?=.)")
_CLASS = {
    name: frozenset(words.split())
    for name, words in re.findall(r"^(\w[\w ]*): (.*(?:\n    .*)*)", _CLOSED_CLASSES, re.MULTILINE)
}
_CLOSED = frozenset().union(*_CLASS.values())
_CLOSED |= _SMALL.keys() | _MULTIPLIERS.keys() | _FRACTIONS.keys()
# A plural of these says how often or how much, too; `sides` and `parts` are nouns.
_COUNTED = frozenset(_SMALL) | frozenset(_MULTIPLIERS) | frozenset(_FRACTIONS)
_COUNTED |= _CLASS["numbers"] | _CLASS["ordinals"]

# What a word can be glued from: `orsix`. Shorter ones make up `units` and `inches` too.
_SHORT_GLUE = frozenset(["or", "no", "is", "of", "to", "if", "by", "so"])
_GLUED = frozenset(word for word in _CLOSED | _COUNTED if len(word) > 2) - {"non"} | _SHORT_GLUE

# Mathematics, and no unit behind a number.
_FUNCTIONS = frozenset(
    _WORD.findall("pi sin cos tan cot sec csc log ln exp sqrt arcsin arccos arctan max gcd lcm det lim")
)
UNIT_LETTERS = frozenset("mgshlNJKWVLCF")
# Symbols that no product of variables would be written as, behind a space and without a wrapper.
UNMISTAKABLE = frozenset(_WORD.findall("cm mm km kg ft lb lbs oz yd mi hr hrs mph kph mL am pm kW kN kPa kHz MHz kJ"))
_PREFIXES = ("", "k", "M", "G", "m", "c", "d", "n", "p", "µ", "μ")
_BASES = _WORD.findall("m g s N J W V A L l Pa Hz mol eV Wb T F C H K B")
_SYMBOLS = UNMISTAKABLE | {prefix + base for prefix in _PREFIXES for base in _BASES if len(prefix + base) > 1}
_SYMBOLS |= frozenset(
    _WORD.findall("min sec mins secs yr yrs wk wks in gal qt pt pts pcs cc cd sr lx lm Bq Gy Sv dB au AU ly pc hp rpm")
    + _WORD.findall("fps mpg psi atm amu ppm ppb kcal cal Btu BTU Wh kWh USD EUR GBP CNY RMB JPY INR PM AM MPH tsp")
    + _WORD.findall("tbsp deg rad rads kgs")
)
_QUALIFIERS = frozenset(["square", "sq", "cubic", "cu"])
_ARTICLES = frozenset(["the", "a", "an"])
_POWER = r"(?:\s*(?:\^\s*)?(?:\{\s*)?-?\d(?:\s*\})?)?"
_NOUN = rf"[^\W\d_]+(?:-[^\W\d_]+)*(?:\(s\))?\.?{_POWER}"
_PHRASE = re.compile(rf"{_NOUN}(?:(?:\s*[/*]\s*|\s+|(?<=\.)){_NOUN})*(?:(?<=[\d}}])\s+)?[.,;]?")
_TOKEN = re.compile(r"[ap]\.m\.?|[^\W\d_]+(?:-[^\W\d_]+)*|/")
_BRACKETED = re.compile(r"\((?=[^()]*[^\W\d_]{2})([^()]*)\)(?!\()")
_SHARE_OF = re.compile(r"of (?=(?:the|an?) )")


@lru_cache(maxsize=2000)
def is_closed(word: str) -> bool:
    """Whether ``word``, or each word it is glued from, belongs to a closed class."""
    word = word.casefold()
    singular = word.removesuffix("s")
    is_counted = singular in _COUNTED and word not in ("seconds", "zeros")
    return word in _CLOSED or is_counted or word.endswith("fold") or (len(word) > 4 and _is_glued(word))


def is_unit(phrase: str) -> bool:
    """Whether marked words name a unit: nouns, joined by `per`, a slash, `of`, or `square` and `cubed` beside them."""
    phrase = phrase.strip()
    if bracketed := _BRACKETED.fullmatch(phrase):
        phrase = bracketed[1].strip()
    phrase = _SHARE_OF.sub("per ", phrase, count=1) if phrase.startswith("of ") else phrase  # 3/4 of a cup
    if not _PHRASE.fullmatch(phrase):
        return False
    before = "start"
    allowed: tuple[str, ...]
    for token in _TOKEN.findall(phrase):
        word = token.casefold()
        if word in ("per", "/"):
            kind, allowed = "joint", ("start", "noun", "inch")
        elif word == "of":
            kind, allowed = "joint", ("noun",)
        elif word in _ARTICLES:
            kind, allowed = "joint", ("joint",)
        elif word == "in":  # inches; in another place it is a preposition
            kind, allowed = "inch", ("start", "joint", "qualifier")
        elif word in _QUALIFIERS:
            kind, allowed = "qualifier", ("start", "joint", "noun")
        elif word in ("squared", "cubed"):
            kind, allowed = "noun", ("noun", "inch")
        elif _is_noun(token):
            kind, allowed = "noun", ("start", "joint", "qualifier", "noun")
        else:
            return False
        if before not in allowed:
            return False
        before = kind
    return before in ("noun", "inch")


def reckoned(phrase: str) -> tuple[str, str] | None:
    """(what to write behind a number, the words that remain) of arithmetic in words: `dozen eggs`, `minus one`."""
    words = phrase.casefold().strip(" .").split()
    if not words:
        return None
    first, rest = words[0], " ".join(words[1:])
    if first in _MULTIPLIERS:
        return f"*{_MULTIPLIERS[first]}", rest
    if not rest and first in _RAISED:
        return _RAISED[first], ""
    if not rest and first in _PLURAL_FRACTIONS:
        return f"/{_PLURAL_FRACTIONS[first]}", ""
    for name, sign in _OPERATORS.items():
        operand = " ".join(words).removeprefix(f"{name} ")
        if operand != " ".join(words) and (value := number(operand)):
            return f"{sign}{value}", ""
    return None


def number(phrase: str) -> str | None:
    """The formula of a number in words: `twenty-one`, `two hundred five`, `minus four`, `two thirds`; None if none."""
    words = phrase.casefold().replace("-", " ").split()
    if len(words) > 1 and words[0] in ("minus", "negative"):
        value = number(" ".join(words[1:]))
        return f"(-{value})" if value else None
    denominator = _FRACTIONS.get(words[-1]) if len(words) > 1 else None
    cardinal = _cardinal(words[:-1] if denominator else words)
    if cardinal is None:
        return None
    return f"\\frac{{{cardinal}}}{{{denominator}}}" if denominator else str(cardinal)


def _cardinal(words: list[str]) -> int | None:
    total = group = 0
    room = 10**15  # what follows must be smaller than the place of the word before it
    for word in words:
        if word in _SMALL and _SMALL[word] < room and (_SMALL[word] or len(words) == 1):
            group += _SMALL[word]
            room = 10 if _SMALL[word] >= 20 else 1
        elif word == "hundred" and 0 < group < 10:
            group, room = group * 100, 100
        elif word in _POWERS and word != "hundred" and group and (not total or total % (_POWERS[word] * 1000) == 0):
            total, group, room = total + group * _POWERS[word], 0, 1000
        else:
            return None
    return total + group if words else None


def _is_noun(token: str) -> bool:
    word = token.casefold().removesuffix(".")
    is_time_or_second = word in ("second", "seconds", "a.m", "p.m")
    if token in _SYMBOLS or token in UNIT_LETTERS or word in UNMISTAKABLE or is_time_or_second:
        return True
    *parts, last = token.split("-")
    if parts:  # man-hours, x-intercepts; but not twenty-one, or-six
        return _is_noun(last) and all(len(part) == 1 or _is_noun(part) for part in parts)
    if not token.isascii():
        return _is_foreign_noun(word)
    if len(word) < 3 or token.isupper() or not re.search("[aeiouy]", word):
        return False
    return word not in _FUNCTIONS | _FOREIGN_CLOSED and not is_closed(word) and not word.endswith("ly")


def _is_foreign_noun(word: str) -> bool:
    """Whether a word is written in one script whose closed classes are known, and belongs to none of them."""
    word = unicodedata.normalize("NFC", word)
    scripts = {unicodedata.name(character, "?").split()[0] for character in word}
    if word in _FOREIGN_CLOSED:
        return False
    if scripts <= {"CJK"}:
        return not _HAN_CLOSED & set(_HAN_POWER.sub("", word))
    return (
        scripts <= {"KATAKANA", "KATAKANA-HIRAGANA"}
        or scripts == {"HANGUL"}
        or (len(word) > 2 and scripts in ({"LATIN"}, {"CYRILLIC"}))
    )


def _is_glued(word: str) -> bool:
    """Whether ``word`` is two or more words of closed classes written as one: `orsix`, `minusone`."""
    ends = {0}
    for end in range(2, len(word) + 1):
        starts = [start for start in ends if start <= end - 2 and end - start < len(word)]
        if any(word[start:end] in _GLUED for start in starts):
            ends.add(end)
    return len(word) in ends
