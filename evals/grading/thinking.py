"""Models that think write a thought, the end marker and then the answer: only what follows the marker is judged."""

from __future__ import annotations

from evals.errors import UsageError

# The column of a samples file that holds the thought; the completion beside it is the rest.
THOUGHT = "thought"
MARKERS_ARE = "expected the end marker, such as `</think>`, or both, such as `<think> </think>`"


def check_markers(markers: str) -> str:
    """``markers`` itself, if it is an end marker, or a start and an end marker with white space between them.

    Raises:
        UsageError: it is neither.
    """
    found = markers.split()
    if len(found) not in (1, 2) or len(set(found)) < len(found):
        raise UsageError(f"thinking markers {markers!a:.80}: {MARKERS_ARE}")
    return markers


def split_thought(text: str, markers: str, prompt: str | None = None) -> tuple[str, str]:
    """(thought with its markers, answer), which together are ``text``; an unfinished thought has an empty answer.

    The answer follows the last end marker. Without one the text is an unfinished thought; but where ``markers`` names a
    start marker too, it is an answer unless a thought began, in the text or at the end of the ``prompt``.
    """
    *start, end = markers.split()
    before, found, after = text.rpartition(end)
    if found:
        is_thinking_again = any(marker in after for marker in start)
        return (text, "") if is_thinking_again else (before + found, after)
    has_begun = all(marker in text or (prompt or "").rstrip().endswith(marker) for marker in start)
    return (text, "") if has_begun else ("", text)
