"""The regular expressions of `@check`: RE2, so that every pattern takes linear time on every value."""

from __future__ import annotations

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def pattern_error(pattern: str) -> str | None:
    """Why a pattern is not RE2, or None when it is.

    >>> pattern_error("^[a-z]+$") is None
    True
    >>> pattern_error("(?=x)")
    'invalid perl operator: (?='
    """
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def is_found(pattern: str, text: str) -> bool:
    """Whether a pattern is found anywhere in a text, which is what `@check` asks."""
    return re2.search(pattern, text, _OPTIONS) is not None
