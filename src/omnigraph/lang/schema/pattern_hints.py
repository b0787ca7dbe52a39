"""Hints for regular expressions that RE2 does not accept: which construct is missing, and what to write instead."""

from __future__ import annotations

import re

_LOOK_AROUND = "RE2 has no look-around; write the condition as a plain pattern"
_OPERATORS = {
    "=": _LOOK_AROUND,
    "!": _LOOK_AROUND,
    "<": _LOOK_AROUND,
    ">": "RE2 has no atomic groups: it never backtracks, so write (?:…)",
    "#": "RE2 has no comments in patterns",
    "|": "RE2 has no branch reset groups: write (?:…)",
    "(": "RE2 has no conditional groups: write the alternatives as (?:a|b)",
    "P": "RE2 has no back-references; a named group is written (?P<name>…)",
}
_FLAGS = {
    "x": "RE2 has no (?x): write the pattern without spaces and comments",
    "a": "RE2 has no such flag; write [0-9A-Za-z_] for ASCII letters, digits and _",
    "u": r"RE2 has no such flag; \w, \d, \s and \b already follow Unicode",
    "L": r"RE2 has no such flag; \w, \d, \s and \b follow Unicode",
}
_ESCAPES = {
    "Z": r"the end of the text is written \z",
    "h": r"horizontal space is written [ \t]",
    "H": r"characters other than horizontal space are written [^ \t]",
    "R": r"a line break is written (?:\r\n|\n|\r)",
    "u": r"a character by its number is written \x{00e9}",
    "U": r"a character by its number is written \x{1f600}",
    "N": r"a character by its number is written \x{1f600}",
    "k": "RE2 has no back-references",
    "g": "RE2 has no back-references",
}
_TOO_LONG = "write several patterns, joined with 'or'; to compare with whole texts, use 'in' and a list"
_OTHERWISE = "the syntax is at https://github.com/google/re2/wiki/Syntax"


def pattern_hint(reason: str) -> str | None:
    """A hint for an error message of RE2; None if the message says what to write.

    >>> pattern_hint("invalid perl operator: (?>")
    'RE2 has no atomic groups: it never backtracks, so write (?:…)'
    >>> pattern_hint("bad repetition operator: ++")
    'RE2 has no possessive quantifiers: it never backtracks, so one sign is enough'
    """
    if "in RE2" in reason:
        return None
    if reason.startswith("it has"):
        return _TOO_LONG
    if "perl operator" in reason:
        written = reason.partition("(?")[2]
        flags = re.match(r"[A-Za-z-]*", written)
        unknown = [flag for flag in (flags.group() if flags else "") if flag in _FLAGS]
        return _FLAGS[unknown[-1]] if unknown else _OPERATORS.get(written[:1], _OTHERWISE)
    if "escape" in reason:
        letter = reason.rpartition("\\")[2][:1]
        if letter.isdecimal():
            return "RE2 has no back-references"
        return _ESCAPES.get(letter, _OTHERWISE)
    if re.search(r"repetition operator: [*+?]\+", reason):
        return "RE2 has no possessive quantifiers: it never backtracks, so one sign is enough"
    return _OTHERWISE
