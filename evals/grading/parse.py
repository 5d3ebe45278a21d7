r"""From tokens to a tree, by recursive descent: each function reads one kind of phrase and leaves what follows it.

    items = element {, element}                 element = side {relation side}
    side = ratio [unit]                         ratio = expression {: expression}
    expression = sum {\cup sum}                 sum = term {+ term}
    term = [-] product                          product = power {* power | / power | power}
    power = postfix [^ exponent | % | degrees]  postfix = atom {! | _ index | '}

What a mathematician would not read as one formula raises `NotAFormula`; such a text equals only the same words.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile
from typing import Any

from evals.grading.tokens import END, MAX_DEPTH, NotAFormula, Token
from evals.grading.tree import OO, Answer, Node, call, neg, num, sym, value_of
from evals.grading.words import UNMISTAKABLE, is_noun, number_in_words, reckoned, unit_name
from evals.text import words_of

FUNCTIONS = words_of(
    "arcsinh arccosh arctanh arcsin arccos arctan sinh cosh tanh sin cos tan cot sec csc ln log exp sqrt"
    " lg max min gcd lcm asin acos atan abs det"
)
_SEVERAL_ARGUMENTS = frozenset(["max", "min", "gcd", "lcm"])
_OTHER_NAMES = {"lg": "log10", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_CONSTANTS = {"pi": sym("π"), "infty": OO, "emptyset": Node("list")}
_ACCENTS = {name: name for name in words_of("vec hat bar tilde dot ddot mathbb mathcal mathscr mathfrak angle")}
_ACCENTS |= {"overline": "bar", "widehat": "hat", "widetilde": "tilde", "overrightarrow": "vec"}
_GREEK = words_of(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau"
    " upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar triangle"
)
_COMMANDS_OF_FACTORS = FUNCTIONS | _CONSTANTS.keys() | _ACCENTS.keys() | _GREEK
_COMMANDS_OF_FACTORS |= words_of("surd binom begin lfloor lceil langle")
_RELATIONS = words_of(
    "= < > <= >= != ~ | in notin to equiv sim napprox parallel perp subset subseteq supset implies iff"
)
_MATRICES = words_of("pmatrix bmatrix matrix array smallmatrix cases Bmatrix")
_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_CURRENCIES = {"\\$": "dollar", "eur": "euro", "gbp": "lb", "jpy": "yen", "cent": "cent"}
_CONNECTIVES = frozenset(["and", "or", "und", "oder", "&"])
_MODULI = frozenset(["bmod", "pmod", "mod"])
# No unit is longer, and no number in words.
MAX_WORDS = 24
# Trees are walked by recursion; a product of 60 factors is as deep.
MAX_TREE_DEPTH = 60
_OF_A_UNIT = frozenset("/^{}*-.()")


class Parser:
    """The tokens of one answer and how far they have been read."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.at = 0
        self._depth = 0
        self._bars = 0
        self._last_bar = max((at for at, token in enumerate(self.tokens) if token.text == "|"), default=-1)

    # -- tokens

    def peek(self, ahead: int = 0) -> Token:
        """The token that comes next, or ``ahead`` of it."""
        at = self.at + ahead
        return self.tokens[at] if 0 <= at < len(self.tokens) else END

    def take(self) -> Token:
        """The token that comes next, which is read by this."""
        token = self.peek()
        self.at += 1
        return token

    def is_sign(self, *texts: str, ahead: int = 0) -> bool:
        """Whether a sign or command of these comes next."""
        token = self.peek(ahead)
        return token.is_mark and token.text in texts

    def skip(self, *texts: str) -> bool:
        """Reads one of these signs or commands if it comes next; whether it did."""
        is_next = self.is_sign(*texts)
        self.at += is_next
        return is_next

    def expect(self, text: str) -> None:
        """Reads this sign."""
        if not self.skip(text):
            raise NotAFormula(f"{text!r} is expected before {self.peek().text!r}")

    # -- lists of values

    def whole(self) -> list[Answer]:
        """All of the tokens: the values between commas."""
        found = self.items()
        if self.peek().kind != "end":
            raise NotAFormula(f"{self.peek().text!r} does not fit")
        return found

    def items(self) -> list[Answer]:
        """Values between commas, `and` or `or`; lists of them where there are semicolons too."""
        groups = [self.element()]
        separators = set[str]()
        while self.is_comma():
            has_word = False
            while self.is_comma():
                separator = self.take()
                has_word |= separator.kind in ("text", "word")
            separators.add(separator.text)
            if self.peek().kind == "end" or self.is_sign(")", "]", "}", "\\}"):
                if has_word:
                    raise NotAFormula("nothing stands behind a conjunction")
                break
            if separator.text == ";":
                groups.append([])
            groups[-1] += self.element()
        if {",", ";"} <= separators:  # x=1,y=2; x=3,y=4
            return [Answer(Node("list", tuple(group))) for group in groups]
        return [one for group in groups for one in group]

    def is_comma(self) -> bool:
        """Whether what comes next separates two values."""
        token = self.peek()
        if token.kind in ("text", "word"):
            return token.text.casefold() in _CONNECTIVES and self.at > 0
        return (token.is_mark or token.kind == "prose") and token.text in (",", ";", "wedge", "lor", "\\&")

    def element(self) -> list[Answer]:
        """One value with its name, unit and mark; two where there is a plus-minus sign."""
        while self.at == 0 and self.skip("~", "="):
            pass
        sides, signs = [self._side()], []
        while self.peek().is_mark and self.peek().text in _RELATIONS and not (self._bars and self.is_sign("|")):
            signs.append(self.take().text)
            sides.append(self._side())
        value = sides[-1]
        if modulus := self._modulus():
            if "~" in signs or set(signs) - {"=", "equiv"} or len(signs) > 1:
                raise NotAFormula("a modulus behind another relation")
            name = sides[0].node if signs else None
            residue = value.node
            if name is not None and not _is_name(name) and _is_name(residue):  # 5 \\equiv x
                name, residue = residue, name
            return [Answer(Node("mod", (Answer(residue), modulus)), name)]
        nodes = [side.node for side in sides]
        unit = value.unit or next((side.unit for side in reversed(sides) if side.unit), "")
        value = replace(value, unit=unit)
        if signs and signs[-1] == "~" and set(signs[:-1]) <= {"="}:
            if len(nodes) == 2 and _is_name(nodes[0]):
                signs = ["="]
            elif nodes[-1].exact is not None and _is_rounding(nodes[-1].exact, nodes[-2]):
                nodes, signs = nodes[:-1], signs[:-1]
                value = replace(sides[-2], unit=unit)
            else:
                raise NotAFormula("no rounding of what stands before it")
        if set(signs) == {"="}:
            value = _chained(nodes, value)
        elif signs:
            value = replace(value, node=Node("rel", (tuple(signs), *nodes)))
        if all(part.op != "pm" for part in value.node.walk()):
            return [value]
        both = (_signed(value.node, is_plus) for is_plus in (True, False))
        return [replace(value, node=node, links=(), equation=None) for node in both]

    def _side(self) -> Answer:
        """An expression with its unit and mark."""
        currency = _CURRENCIES[self.take().text] if self.peek().text in _CURRENCIES and self.peek().is_mark else ""
        start = self.at
        node, mark = _lifted(self._ratio())
        if self.at - start <= 6 and (arithmetic := self._words_behind(node)):
            node, unit = arithmetic
        else:
            unit = self._unit()
        if unit in ("percent", "deg"):
            if mark:
                raise NotAFormula("two marks")
            mark, unit = ("%" if unit == "percent" else "deg"), ""
        return Answer(node, None, unit or currency, mark)

    def _modulus(self) -> Node | None:
        has_bracket = self.is_sign("(")
        if self.peek(has_bracket).text not in _MODULI:
            return None
        self.at += 1 + has_bracket
        found = self.argument() if self.is_sign("{") else self.expression()
        if has_bracket:
            self.expect(")")
        return found

    # -- words

    def _phrase(self) -> tuple[str, int]:
        """The words that follow up to the end of the element, as one text, and where they end."""
        phrase, at = "", self.at
        for token in self.tokens[at : at + MAX_WORDS]:
            if token.kind in ("text", "word"):
                is_part = token.text.casefold() not in ("and", "or")
            elif phrase:
                is_part = token.kind == "number" or (token.kind in ("sign", "prose") and token.text in _OF_A_UNIT)
            else:
                is_part = token.text == "/" or (token.kind == "prose" and token.text in "().-")
            opening = {")": "(", "}": "{"}.get(token.text, "") if token.is_mark else ""
            if not is_part or opening not in phrase:
                break
            phrase += f" {token.text}" if token.gap and phrase else token.text
            at += 1
        return phrase, at

    def _words_behind(self, node: Node) -> tuple[Node, str] | None:
        """A plain number with the arithmetic in words behind it, and the unit that is left: `3 dozen eggs`."""
        if node.exact is None or node.op not in ("num", "neg", "/") or self.peek().kind not in ("text", "word"):
            return None
        phrase, end = self._phrase()
        arithmetic = reckoned(phrase)
        if arithmetic is None or (unit := unit_name(arithmetic.rest) if arithmetic.rest else "") is None:
            return None
        self.at = end
        return Node(arithmetic.op, (node, num(arithmetic.operand))), unit

    def _unit(self) -> str:
        """The unit that the words behind a value name; empty, and nothing read, where they name none."""
        start = self.at
        if self.is_sign("*") and self.peek(1).kind == "text":
            self.take()
        token = self.peek()
        if self.is_sign("frac") and self.peek(2).kind == "text":
            self.take()
            phrase = f"{self._enclosed()}/{self._enclosed()}"  # \frac{\text{m}}{\text{s}}
            end = self.at
        elif token.kind == "word" and not token.gap and token.text.isascii() and token.text not in UNMISTAKABLE:
            phrase, end = "", start
        else:
            phrase, end = self._phrase()
        is_percent = phrase.strip(" .()").casefold() in ("percent", "per cent", "percentage", "pct")
        unit = "percent" if is_percent else unit_name(phrase)
        self.at = start if unit is None else end
        return unit or ""

    def _enclosed(self, opening: str = "{", closing: str = "}") -> str:
        """The text in the braces or brackets that come next."""
        self.expect(opening)
        text, depth = "", 1
        while self.at < len(self.tokens):
            token = self.take()
            depth += (token.text == opening) - (token.text == closing)
            if not depth:
                return text
            text += f" {token.text}" if token.gap and text else token.text
        raise NotAFormula("a bracket is not closed")

    def _number_in_words(self) -> Node | None:
        following = self.tokens[self.at : self.at + 8]
        words = [token.text for token in takewhile(lambda token: token.kind in ("text", "word"), following)]
        for end in range(len(words), 0, -1):
            if (value := number_in_words(" ".join(words[:end]))) is not None:
                self.at += end
                return num(value)
        return None

    # -- expressions

    def _ratio(self) -> Node:
        found = [self.expression()]
        while self.skip(":"):
            found.append(self.expression())
        return found[0] if len(found) == 1 else Node("ratio", tuple(found))

    def expression(self) -> Node:
        """A sum, or sets that are joined."""
        found = self._sum()
        if self.skip("over"):
            found = Node("/", (found, self._sum()))
        while self.is_sign("cup", "cap", "setminus"):
            found = Node(self.take().text, (found, self._sum()))
        if found.depth > MAX_TREE_DEPTH:
            raise NotAFormula(f"operations in operations, more than {MAX_TREE_DEPTH} deep")
        return found

    def _sum(self) -> Node:
        terms = [self._term()]
        while self.is_sign("+", "-", "pm", "mp"):
            sign = self.take().text
            if self.is_sign("+", "-") and not (sign == "+" and self.is_sign("-")):
                raise NotAFormula("two signs")
            terms.append(_with_sign(sign, self._term()))
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _term(self) -> Node:
        if self.is_sign("-", "+", "pm", "mp"):
            sign = self.take().text
            if self.is_sign("-", "+", "pm", "mp"):
                raise NotAFormula("two signs")
            return _with_sign(sign, self._term())
        found = self._power()
        is_power = found.op == "^"
        while True:
            if self.is_sign("*", "/") and self.peek(1).kind != "text":
                found = Node(self.take().text, (found, self._signed()))
            elif self._begins_mixed_fraction(found):
                found = Node("+", (found, self._power() if self.is_sign("frac") else self._plain_fraction()))
            elif self._begins_factor() or (
                is_power and self.peek().kind == "number" and self.peek(-1).kind != "number"
            ):
                factor = self._power()  # 3^x 2^x
                found, is_power = Node("*", (found, factor)), factor.op == "^"
            else:
                return found

    def _signed(self) -> Node:
        return neg(self._power()) if self.skip("-") else self._power()

    def _begins_mixed_fraction(self, before: Node) -> bool:
        r"""Whether a fraction of plain numbers follows a plain integer: `3\frac12`, `3 1/2`; not `(3)\frac12`."""
        if before.op != "num" or before.args[0].denominator != 1 or self.peek(-1).kind != "number":
            return False
        if self.is_sign("frac"):
            numbers = [token for token in self.tokens[self.at + 1 : self.at + 7] if token.text not in "{}"]
            is_short = self.peek(1).kind == "number" and len(self.peek(1).text) == 2  # \frac12
            return all(token.kind == "number" for token in numbers[: 1 if is_short else 2])
        number, sign, below = (self.peek(ahead) for ahead in range(3))
        return (number.kind, sign.text, below.kind) == ("number", "/", "number") and bool(number.gap)

    def _plain_fraction(self) -> Node:
        numerator, _, denominator = self.take(), self.take(), self.take()
        return Node("/", (num(numerator.text), num(denominator.text)))

    def _begins_factor(self) -> bool:
        token = self.peek()
        if token.kind == "word":
            return self._is_factor_word(token)
        if token.kind == "command":
            if token.text == "frac":
                return self.peek(2).kind != "text" or self.peek(1).text != "{"
            return token.text.startswith("unit ") or token.text in _COMMANDS_OF_FACTORS
        opens_bars = token.text == "|" and not self._bars and self.at < self._last_bar
        is_modulus = token.text == "(" and self.peek(1).text in _MODULI
        return token.kind == "sign" and (opens_bars or (token.text in _CLOSING and not is_modulus))

    def _is_factor_word(self, token: Token) -> bool:
        """Whether bare letters behind a factor are letters to multiply, and not a unit or a word."""
        if (
            not token.text.isascii()
            or number_in_words(token.text) is not None
            or self.is_comma()
            or token.text in ("pct", "percent", "mod")
        ):
            return False
        is_behind_number = self.peek(-1).kind == "number"
        is_apart = len(token.text) > 1 and bool(token.gap or is_behind_number)
        if is_apart and token.text not in FUNCTIONS and unit_name(token.text) is not None:
            return False
        if token.gap and is_behind_number and self._depth == 0 and self._ends_in_unit():
            return False
        return len(token.text) < 5 or token.text in FUNCTIONS or token.text.isupper()

    def _ends_in_unit(self) -> bool:
        phrase, end = self._phrase()
        following = self.tokens[end] if end < len(self.tokens) else END
        is_end = following.kind in ("end", "text", "row") or following.text in (",", ";", "=", ")", "]", "and", "or")
        return is_end and unit_name(phrase) is not None

    def _power(self) -> Node:
        base = self._postfix()
        if self._skip_degrees():
            return Node("deg", (base,))
        if self.skip("%"):
            return Node("pct", (base,))
        if not self.skip("^"):
            return base
        mark = self.peek(1 if self.is_sign("{") else 0).text
        if mark in ("T", "top", "'", "dagger", "complement") and (base.op != "num"):
            self.raw_argument()
            return _transposed(base) if mark in ("T", "top") else _primed(base, mark)
        if mark in ("st", "nd", "rd", "th") and base.op in ("num", "sym"):
            self.raw_argument()
            return base
        self._depth += 1
        exponent = self.argument(is_exponent=True)
        self._depth -= 1
        return Node("^", (base, exponent))

    def _postfix(self) -> Node:
        found = self._atom()
        while True:
            if self.is_sign("!") and not self.is_sign("=", ahead=1):
                self.take()
                found = call("factorial", found)
            elif found.op in ("sym", "num", "i", "e") and self.skip("_"):
                index = self.raw_argument()
                if found.op == "num":
                    base = number_in_words(index)
                    found = Node("based", (found, str(base if base is not None else index)))
                else:
                    found = sym(f"{found.args[0] if found.args else found.op}_{index}")
            elif found.op in ("sym", "i", "e") and self.skip("'"):
                found = _primed(found, "'")
            else:
                return found

    def _skip_degrees(self) -> bool:
        """Reads a sign of degrees, `^\\circ` or `^{\\circ}`; whether there was one."""
        has_brace = self.is_sign("{", ahead=1)
        is_letter = self.peek(1 + has_brace).text == "o" and self.peek(-1).kind == "number"
        if not (self.is_sign("^") and (is_letter or self.is_sign("circ", ahead=1 + has_brace))):
            return False
        self.at += 2 + 2 * has_brace
        return True

    def raw_argument(self) -> str:
        """The text of an index: the tokens in braces, or one token."""
        if self.is_sign("{"):
            return self._enclosed().replace(" ", "").strip("()")
        token = self.take()
        if token.kind == "word" and len(token.text) > 1:
            self.at -= 1
            self.tokens[self.at] = token._replace(text=token.text[1:], gap="")
        return token.text[0] if token.kind == "word" else token.text

    def argument(self, *, is_exponent: bool = False) -> Node:
        """What a command takes: a group in braces, or one digit, letter or command. Exponents take a whole number."""
        token = self.peek()
        if self.skip("{"):
            inner = self.expression()
            self.expect("}")
            return inner
        if self.skip("-"):
            return neg(self._atom())
        if token.kind == "number" and len(token.text) > 1 and not is_exponent and token.text.isdigit():
            self.tokens[self.at] = Token("number", token.text[1:])
            return num(token.text[0])
        if token.kind == "word" and len(token.text) > 1 and token.text not in FUNCTIONS:
            self.tokens[self.at] = Token("word", token.text[1:])
            return sym(token.text[0])
        return self._postfix() if self.is_sign("(") else self._atom()

    # -- atoms

    def _atom(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotAFormula(f"nested more than {MAX_DEPTH} times")
        found = self._plain_atom()
        self._depth -= 1
        return found

    def _plain_atom(self) -> Node:
        token = self.peek()
        if token.kind in ("text", "word") and (value := self._number_in_words()) is not None:
            return value
        self.take()
        if token.kind == "number":
            return self._number(token)
        if token.kind == "word":
            return self._word(token)
        if token.kind == "command":
            return self._command(token.text)
        if token.kind == "text" and (len(token.text) == 1 or (self.is_sign("=") and is_noun(token.text))):
            return sym(token.text)
        if token.text == "|":
            self._bars += 1
            inner = self.expression()
            self.expect("|")
            self._bars -= 1
            return call("abs", inner)
        if token.kind == "sign" and token.text in _CLOSING:
            return self._brackets(token.text)
        raise NotAFormula(f"{token.text!r} does not begin a value")

    def _brackets(self, opening: str) -> Node:
        if opening == "\\{" and self.skip("\\}"):
            return Node("list")
        if opening == "\\{" and self.is_sign("begin") and all(token.text != "\\}" for token in self.tokens[self.at :]):
            return self._matrix(is_system=True)  # \left\{\begin{array}{l}...\right.
        if opening == "{" and self.skip("}"):
            return self._atom()
        bars, self._bars = self._bars, 0
        items = self.items()
        self._bars = bars
        closing = self.take()
        if closing.kind == "prose" or closing.text not in ((")", "]") if opening in "([" else (_CLOSING[opening],)):
            raise NotAFormula("a bracket is not closed")
        if opening == "\\{":
            return Node("set", tuple(items))
        if opening == "{" and len(items) > 1:
            raise NotAFormula("a list in braces")
        if len(items) > 1:
            return Node("tuple", (opening + closing.text, *items))
        if opening + closing.text not in ("()", "[]", "{}"):
            raise NotAFormula("half an interval")
        [one] = items
        if one.unit or one.mark or one.name or one.links:
            return Node("one", (one,))
        return one.node

    def _number(self, token: Token) -> Node:
        if "." in token.text and self.is_sign("bar", "overline", "dot") and self.is_sign("{", ahead=1):
            self.take()
            period = self.raw_argument()
            if not (period.isascii() and period.isdigit()):
                raise NotAFormula("a bar over no digits")
            return num(_repeating(token.text, period))
        if self.skip("ldots"):
            return num(_repeating(token.text, _period(token.text)))
        value = Fraction(token.text)
        decimals = token.text.partition(".")[2]
        if "e" not in token.text.lower() and decimals and len(token.text.replace(".", "").lstrip("0")) >= 15:
            return Node("float", (value, Fraction(1, 10 ** len(decimals))))
        return Node("num", (value,))

    def _word(self, token: Token) -> Node:
        text = token.text
        if text in FUNCTIONS:
            return self._function(text)
        if text in ("pi", "infinity", "inf", "oo", "Infinity"):
            return _CONSTANTS["pi" if text == "pi" else "infty"]
        if len(text) > 2 and text.isupper():
            return sym(text)
        if len(text) > 4 or not text.isascii():
            raise NotAFormula(f"the word {text!r}")
        if len(text) == 1:
            return self._applied(text) or sym(text)
        # The last letter keeps its index and exponent.
        self.at -= 1
        self.tokens[self.at] = Token("word", text[-1])
        found = sym(text[0])
        for letter in text[1:-1]:
            found = Node("*", (found, sym(letter)))
        return Node("*", (found, self._power()))

    def _applied(self, letter: str) -> Node | None:
        """`f(x)` and `P'(2)` as one name; None where the letter is a factor."""
        at = self.at
        while self.is_sign("'"):
            letter += self.take().text
        if letter[0] in "fghPQ" and self.is_sign("(") and not self.peek().gap:
            return sym(f"{letter}({self._enclosed('(', ')').replace(' ', '')})")
        self.at = at
        return None

    def _command(self, name: str) -> Node:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name == "frac":
            text = "".join(token.text for token in self.tokens[self.at : self.at + 12])
            derivative = re.match(r"\{d(?:\^\d)?[a-z]?\}\{d[a-z](?:\^\d)?\}", text)
            found = Node("/", (self.argument(), self.argument()))
            return sym(derivative[0]) if derivative else found
        if name == "binom":
            return call("binom", self.argument(), self.argument())
        if name in ("sqrt", "surd"):
            return self._root(name)
        if name in FUNCTIONS:
            return self._function(name)
        if name in _ACCENTS:
            letters = self.take().text if self.peek().kind == "word" else self.raw_argument()
            return sym(f"{_ACCENTS[name]}:{letters}")
        if name in ("lfloor", "lceil"):
            inner = self.expression()
            self.expect("r" + name[1:])
            return call("floor" if name == "lfloor" else "ceil", inner)
        if name == "langle":
            items = self.items()
            self.expect("rangle")
            return Node("tuple", ("()", *items))
        if name == "begin":
            return self._matrix()
        if name in _GREEK:
            return sym(f"\\{name}")
        if name.startswith("unit "):
            return sym(name)
        raise NotAFormula(f"\\{name} is not known")

    def _root(self, name: str) -> Node:
        if name == "surd":  # √12 is the root of the whole number
            inner = self._brackets(self.take().text) if self.is_sign("(", "{") else self._atom()
            return Node("root", (inner, num(2)))
        index = num(2)
        if self.skip("["):
            index = self.expression()
            self.expect("]")
        if self.peek().kind == "number" and self.peek(-1).kind == "word":  # sqrt 12, in words
            return Node("root", (self._atom(), index))
        return Node("root", (self.argument(), index))

    def _function(self, name: str) -> Node:
        if name == "sqrt":
            return self._root(name)
        power = base = None
        while self.is_sign("^", "_"):
            if self.take().text == "^":
                power = self.argument()
            else:
                base = self.argument()
        if name in _SEVERAL_ARGUMENTS or self.is_sign("(", "[", "{"):
            opening = self.take()
            if not opening.is_mark or opening.text not in _CLOSING:
                raise NotAFormula(f"{name} without its arguments")
            given = [Node("deg", (item.node,)) if item.mark == "deg" else item.node for item in self.items()]
            self.expect(_CLOSING[opening.text])
        else:
            product = self._signed()
            while self._begins_factor() and not self.is_sign("(") and self.peek().text not in FUNCTIONS:
                product = Node("*", (product, self._power()))
            given = [product]
        if len(given) > 1 and name not in _SEVERAL_ARGUMENTS:
            raise NotAFormula(f"{name} of several values")
        if name == "log" and base is not None:
            given.append(base)
        name = _OTHER_NAMES.get(name, name)
        if power == neg(num(1)) and name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
            name, power = f"arc{name}", None
        found = Node("^", (Node("e"), given[0])) if name == "exp" else call(name, *given)
        return found if power is None else Node("^", (found, power))

    def _matrix(self, *, is_system: bool = False) -> Node:
        if is_system:
            self.take()
        kind = self.raw_argument()
        if kind not in _MATRICES:
            raise NotAFormula(f"\\begin{{{kind}}} is not known")
        if kind == "array" and self.is_sign("{"):
            self.raw_argument()
            kind = "cases" if is_system else kind
        rows = self._rows(is_cases=kind == "cases")
        is_column = bool(rows) and all(len(row) == 1 for row in rows)
        if is_column and (kind == "cases" or (kind == "array" and len(rows) == 1)):
            [first] = rows[0]
            is_alone = len(rows) == 1 and not first.name
            return first.node if is_alone else Node("list", tuple(row[0] for row in rows))
        if kind == "cases":
            return Node("cases", tuple(Answer(Node("tuple", ("()", *row))) for row in rows))
        return Node("matrix", (tuple(map(len, rows)), *(cell for row in rows for cell in row)))

    def _rows(self, *, is_cases: bool) -> list[list[Answer]]:
        """The cells of each row that has any, and the command behind the last."""
        rows: list[list[Answer]] = [[]]
        while not self.is_sign("end"):
            token = self.peek()
            is_if = token.kind == "text" and token.text.casefold() in ("if", "for", "when")
            is_between = self.is_comma() and (self.is_sign("&", ahead=1) or bool(rows[-1]))
            if token.kind == "row":
                self.take()
                rows.append([])
            elif self.is_sign("&") or (is_cases and (is_between or is_if)):
                self.take()
            elif token.kind == "end":
                raise NotAFormula("a matrix is not closed")
            else:
                rows[-1] += self.element()
                is_end = self.is_sign("&", "end") or self.peek().kind in ("row", "text")
                if not (is_end or (is_cases and self.is_comma())):
                    raise NotAFormula(f"{self.peek().text!r} in a matrix")
        self.take()
        self.raw_argument()
        return [row for row in rows if row]


# -- what a phrase means


def _with_sign(sign: str, term: Node) -> Node:
    if sign in ("pm", "mp"):
        return Node("pm", (term if sign == "pm" else neg(term),))
    return neg(term) if sign == "-" else term


def _primed(node: Node, mark: str) -> Node:
    if node.op == "sym" and mark == "'":
        return sym(f"{node.args[0]}'")
    return Node("sym", (f"{node.op if not node.args else node}^{mark}",))


def _transposed(node: Node) -> Node:
    """A row becomes a column, and a matrix is turned; any other base is marked by the sign."""
    if node.op == "tuple" and node.args[0] in ("()", "[]"):
        return Node("matrix", ((1,) * (len(node.args) - 1), *node.args[1:]))
    if node.op == "matrix":
        widths, *cells = node.args
        if len(set(widths)) == 1:
            width = widths[0]
            turned = [cell for column in range(width) for cell in cells[column::width]]
            return Node("matrix", ((len(widths),) * width, *turned))
    return Node("sym", (f"{node}^T",))


def _repeating(text: str, period: str) -> Fraction:
    """The decimal ``text`` with the digits ``period`` behind it again and again."""
    shift = 10 ** len(text.partition(".")[2])
    return (Fraction(text + "0") * shift + Fraction(int(period), 10 ** len(period) - 1)) / shift


def _period(text: str) -> str:
    """The last digits of a decimal, if they stand there twice: `0.1666` repeats its 6."""
    decimals = text.partition(".")[2]
    for length in range(1, len(decimals) // 2 + 1):
        if decimals.isdigit() and decimals.endswith(2 * decimals[-length:]):
            return decimals[-length:]
    raise NotAFormula("dots behind no decimal that repeats")


def _lifted(node: Node) -> tuple[Node, str]:
    """A value without the sign of per cent or degrees that all of its terms have, and that sign."""
    if node.op in ("pct", "deg"):
        inner = node.args[0]
        return (inner, "%" if node.op == "pct" else "deg") if inner.op not in ("pct", "deg") else (node, "")
    if node.op in ("neg", "+", "pm"):
        found = [_lifted(arg) for arg in node.args]
        if len({mark for _, mark in found}) == 1:
            return Node(node.op, tuple(inner for inner, _ in found)), found[0][1]
    elif node.op in ("*", "/"):
        (one, mark), (other, second) = map(_lifted, node.args)
        if bool(mark) != bool(second) and not (node.op == "/" and second):
            return Node(node.op, (one, other)), mark or second
    return node, ""


def _chained(sides: Sequence[Node], value: Answer) -> Answer:
    """`x = 2+3 = 5`: the value named x, of which each link must be equal; an equation where no side is a name."""
    equation = Node("rel", (("=",), *sides)) if len(sides) == 2 else None
    is_sum = len(sides) > 2 and sides[0].op == "+" and all(term.op in ("sym", "neg") for term in sides[0].args)
    if not (_is_name(sides[0]) or is_sum):
        if equation is not None and _is_name(sides[1]):
            return replace(value, node=sides[0], name=sides[1], equation=equation)
        if equation is not None and equation.names:
            return replace(value, node=equation)
        return replace(value, links=tuple(sides[:-1]))
    name, *links, last = sides
    # `S = \frac12 ab = 6`: a formula in letters that the value has not is one more name of it.
    kept = tuple(link for link in links if link.names <= last.names)
    return replace(value, node=last, name=name, links=kept, equation=equation)


def _is_name(node: Node) -> bool:
    """Whether a side of an equals sign may be a label: letters without numbers; a ratio or cosine of capitals."""
    if node.op == "sym":
        return True
    if node.op in ("call", "/"):
        has_capitals = all(name.removeprefix("angle:")[:1].isupper() for name in node.names)
        return bool(node.names) and has_capitals and node.args[0] not in ("ln", "log", "floor", "ceil", "factorial")
    below = tuple(node.nodes())
    return node.op in ("*", "tuple", "ratio") and bool(node.names) and all(map(_is_name, below))


def _is_rounding(rounded: Fraction, whole: Node) -> bool:
    """Whether at most a twentieth is lost."""
    exact = value_of(whole)
    return exact is not None and bool(abs(exact - rounded.numerator / rounded.denominator) <= abs(exact) / 20)


def _signed(node: Any, is_plus: bool) -> Any:
    """One of the two that a plus-minus sign says."""
    if isinstance(node, Answer):
        return replace(node, node=_signed(node.node, is_plus))
    if not isinstance(node, Node):
        return node
    if node.op == "pm":
        inner = _signed(node.args[0], is_plus)
        return inner if is_plus else neg(inner)
    return Node(node.op, tuple(_signed(arg, is_plus) for arg in node.args))
