"""Untrusted text, such as a model's answer, made visible. Writers escape what their formats need on top."""

import re

# C0 and C1 controls, line separators, lone surrogates, and Unicode's category Cf: direction marks and overrides,
# zero-width characters, soft hyphens, tags.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def visible(text: str, *, keep: str = "\t\n\r", controls_only: bool = False) -> str:
    """``text`` with what acts on a terminal or cannot be seen spelled out, as in `\\x1b`; characters in ``keep`` stay.

    ``controls_only`` leaves direction marks, zero-width characters and lone surrogates as they are.
    """

    def spelled(match: re.Match[str]) -> str:
        character = match.group()
        return character if character in keep else character.encode("unicode_escape").decode("ascii")

    return (_CONTROL if controls_only else _INVISIBLE).sub(spelled, text)
