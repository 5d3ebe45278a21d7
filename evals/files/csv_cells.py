"""Cells of CSV files. Every text is untrusted: a spreadsheet must take none of them for a formula."""

import math
import re
import unicodedata

# U+2212 is what NFKC makes of the superscript and subscript minus.
_SIGNS = ("=", "+", "-", "\u2212", "@")
_UNSEEN = re.compile("[\\s\x00-\x1f\x7f-\xa0\u200b-\u200f\u2060\ufeff]+")
_NUMBER = re.compile(r"[-+]?(\d+(?:\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def csv_text(text: str) -> str:
    """``text`` with a leading apostrophe where a spreadsheet would take it for a formula (OWASP, "CSV Injection").

    Some take a full-width or small sign for the plain one, and pass over spaces and invisible characters before it. A
    carriage return becomes a newline: writers quote only that, and a row would end at the other.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first = _UNSEEN.sub("", text[:64])[:1]
    is_formula = unicodedata.normalize("NFKC", first) in _SIGNS
    return f"'{text}" if is_formula or text.startswith(("\t", "\n")) else text


def csv_cell(value: object) -> str:
    """`csv_text` of a text, a number as it is (negative ones too), and an empty cell for None."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return text if _NUMBER.fullmatch(text) else csv_text(text)
