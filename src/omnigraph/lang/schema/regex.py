r"""The regular expressions of `@check` and `matches`: RE2, so that every pattern takes linear time on every value.

RE2 knows `\w`, `\d`, `\s` and `\b` for ASCII only. The classes are rewritten as Unicode properties. A word boundary
cannot be rewritten, because RE2 looks at single bytes for it: texts are tagged instead, see `WordTags`.
"""

# See docs/decisions/0015-patterns-are-re2.md
# See docs/decisions/0131-patterns-are-translated-for-re2.md

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False

_DIGIT = r"\p{Nd}"
_SPACE = r"\t-\r\x20\x{85}\p{Z}"
_LETTERS = r"\p{L}\p{M}\p{Nd}\p{Nl}\x{200C}\x{200D}"
_CONNECTORS = r"\x{203F}\x{2040}\x{2054}\x{FE33}\x{FE34}\x{FE4D}-\x{FE4F}\x{FF3F}"
"""Connecting punctuation, without the underscore."""

WORD = f"{_LETTERS}{_CONNECTORS}_"
r"""What `\w` means, inside a class: letters, marks, digits and connectors, as Unicode's annex 18 has it."""

_NOT_SPACE = (
    r"\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_TAG = "_"
_UNDERSCORE = "\ufdd0"
"""What stands for an underscore in tagged texts: a code point that no text has."""


@dataclass(frozen=True, slots=True)
class WordTags:
    r"""How `\b` is answered for texts that are not ASCII.

    Every word character `c` of the text becomes `_c_`, so that RE2 sees an ASCII word character on its side of every
    boundary. The pattern matches such units.

    Attributes:
        pattern: the pattern for tagged texts.
        word: a pattern whose group is a word character, to replace by `_\1_` after underscores are `underscore`.
        underscore: what stands for an underscore.
    """

    pattern: str
    word: str = f"([{_LETTERS}{_CONNECTORS}{_UNDERSCORE}])"
    underscore: str = _UNDERSCORE
    tagged: str = rf"{_TAG}\1{_TAG}"


@dataclass(frozen=True, slots=True)
class Pattern:
    r"""A pattern as RE2 has to be given it.

    Attributes:
        text: for texts of ASCII, and for all texts when there are no word boundaries in it.
        tags: for other texts, when there are.
    """

    text: str
    tags: WordTags | None = None


def pattern_error(pattern: str) -> str | None:
    """Why a pattern cannot be used, or None when it can.

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
    return difference(pattern)


def difference(pattern: str) -> str | None:
    """What RE2 would read otherwise than the author most likely means it; None when there is nothing.

    >>> difference("[a-z&&[^x]]")
    "'&&' in a class is no intersection in RE2: write the class out, or a single '&' for the character"
    """
    for token in _tokens(pattern):
        if token.kind == "class" and "&&" in token.text:
            return "'&&' in a class is no intersection in RE2: write the class out, or a single '&' for the character"
        if token.kind == "flags" and "U" in token.text.partition("-")[0]:
            return "(?U) makes RE2 lazy, and has nothing to do with Unicode, which is always on: leave it out"
        if token.text == r"\C":
            return r"\C is a byte in RE2, and may be half a character: write . or (?s:.)"
    return None


def is_found(pattern: str, text: str) -> bool:
    """Whether a pattern is found anywhere in a text, which is what `@check` asks."""
    made = translated(pattern)
    if made.tags is None or text.isascii():
        return re2.search(made.text, text, _OPTIONS) is not None
    tags = made.tags
    tagged = re2.sub(tags.word, tags.tagged, text.replace("_", tags.underscore), options=_OPTIONS)
    return re2.search(tags.pattern, tagged, _OPTIONS) is not None


@lru_cache(maxsize=1024)
def translated(pattern: str) -> Pattern:
    r"""A pattern with the Unicode meaning of `\w`, `\d`, `\s` and `\b`.

    >>> translated(r"^\d+$").text
    '^[\\p{Nd}]+$'
    """
    tokens = list(_tokens(pattern))
    text = "".join(map(_plain, tokens))
    if re2_refuses(text):  # longer than RE2 takes, or read wrongly here: the pattern as it was
        return Pattern(pattern)
    tags = _tagged(tokens) if any(token.kind == "boundary" for token in tokens) else None
    return Pattern(text, None if tags is None or re2_refuses(tags) else WordTags(tags))


def re2_refuses(pattern: str) -> bool:
    """Whether RE2 cannot compile a pattern."""
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error:
        return True
    return False


# Reading a pattern


class _Token(NamedTuple):
    """A piece of a pattern.

    Attributes:
        kind: `char` (one character, or an escape for one), `class` (in brackets, or an escape for several), `dot`,
            `boundary`, `open`, `close`, `flags` (an opening with flags, or flags alone), `other`.
        text: as it was written.
    """

    kind: str
    text: str


def _tokens(pattern: str) -> Iterator[_Token]:
    i = 0
    while i < len(pattern):
        start, char = i, pattern[i]
        if char == "\\" and pattern[i + 1 : i + 2] == "Q":
            end = pattern.find(r"\E", i)
            for literal in pattern[i + 2 : len(pattern) if end < 0 else end]:
                yield _Token("char", _escaped(literal))
            i = len(pattern) if end < 0 else end + 2
            continue
        if char == "\\":
            i = _escape_end(pattern, i)
            yield _Token(_ESCAPES.get(pattern[start + 1 : start + 2], "char"), pattern[start:i])
        elif char == "[":
            i = _class_end(pattern, i)
            yield _Token("class", pattern[start:i])
        elif char == "(":
            i, kind = _group_end(pattern, i)
            yield _Token(kind, pattern[start:i])
        elif char == "{" and (end := pattern.find("}", i)) > 0 and pattern[i + 1 : end].replace(",", "").isdigit():
            i = end + 1
            yield _Token("other", pattern[start:i])
        else:
            i += 1
            yield _Token(_SIGNS.get(char, "char"), char)


_ESCAPES = {
    **dict.fromkeys("dDwWsSpP", "class"),
    **dict.fromkeys("bB", "boundary"),
    **dict.fromkeys("AzC", "other"),
}
_SIGNS = {".": "dot", ")": "close", **dict.fromkeys("^$|*+?", "other")}


def _escaped(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}"


def _escape_end(pattern: str, i: int) -> int:
    """Where an escape ends that begins at a place."""
    letter = pattern[i + 1 : i + 2]
    if letter in ("p", "P", "x") and pattern[i + 2 : i + 3] == "{":
        end = pattern.find("}", i)
        return len(pattern) if end < 0 else end + 1
    if letter == "x":
        return min(len(pattern), i + 4)
    if letter in ("p", "P"):
        return min(len(pattern), i + 3)
    if letter.isdigit():
        end = i + 2
        while end < min(len(pattern), i + 4) and pattern[end] in "01234567":
            end += 1
        return end
    return min(len(pattern), i + 2)


def _class_end(pattern: str, i: int) -> int:
    i += 1
    i += pattern[i : i + 1] == "^"
    i += pattern[i : i + 1] == "]"  # the first one is a character
    while i < len(pattern) and pattern[i] != "]":
        if pattern[i] == "\\":
            i = _escape_end(pattern, i)
        elif pattern.startswith("[:", i) and (end := pattern.find(":]", i)) > 0:
            i = end + 2
        else:
            i += 1
    return min(len(pattern), i + 1)


def _group_end(pattern: str, i: int) -> tuple[int, str]:
    if pattern[i + 1 : i + 2] != "?":
        return i + 1, "open"
    end = i + 2
    if pattern[end : end + 1] in ("P", "<"):
        close = pattern.find(">", end)
        return (len(pattern) if close < 0 else close + 1), "open"
    while end < len(pattern) and pattern[end] not in ":)":
        end += 1
    return min(len(pattern), end + 1), "flags"


def _items(text: str) -> tuple[bool, list[str]]:
    """Whether a class is negated, and what is in it: characters, escapes, named classes, and ranges as `a-b`."""
    inside = text[1:-1]
    negated = inside.startswith("^")
    inside = inside[negated:]
    items: list[str] = []
    i = 0
    while i < len(inside):
        end = _item_end(inside, i)
        if inside[end : end + 1] == "-" and end + 1 < len(inside) and _is_character(inside[i:end]):
            end = _item_end(inside, end + 1)
        items.append(inside[i:end])
        i = end
    return negated, items


def _item_end(inside: str, i: int) -> int:
    if inside[i] == "\\":
        return _escape_end(inside, i)
    if inside.startswith("[:", i) and (end := inside.find(":]", i)) > 0:
        return end + 2
    return i + 1


def _is_character(item: str) -> bool:
    return not item.startswith("[:") and not (item.startswith("\\") and item[1:2] in "dDwWsSpP")


# Writing it for RE2


def _plain(token: _Token) -> str:
    if token.kind != "class":
        return token.text
    return _CLASSES.get(token.text) or (_class(token.text) if token.text.startswith("[") else token.text)


_CLASSES = {
    r"\d": f"[{_DIGIT}]",
    r"\D": f"[^{_DIGIT}]",
    r"\w": f"[{WORD}]",
    r"\W": f"[^{WORD}]",
    r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]",
}
_IN_CLASS = {r"\d": _DIGIT, r"\D": r"\P{Nd}", r"\w": WORD, r"\s": _SPACE, r"\S": _NOT_SPACE}


def _class(text: str) -> str:
    negated, items = _items(text)
    return f"[{'^' if negated else ''}{''.join(_in_class(item) for item in items)}]"


def _in_class(item: str) -> str:
    return _not_word() if item == r"\W" else _IN_CLASS.get(item, item)


@lru_cache(maxsize=1)
def _not_word() -> str:
    r"""The characters of `\W` as ranges: RE2 cannot put the complement of several properties into a class."""
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    ranges = []
    for run in re2.finditer(f"[^{WORD}]+", every, _OPTIONS):
        first, last = ord(run[0][0]), ord(run[0][-1])
        ranges.append(rf"\x{{{first:x}}}-\x{{{last:x}}}")
    return "".join(ranges)


def _tagged(tokens: list[_Token]) -> str | None:
    """The pattern for tagged texts; None when a class of it holds an underscore that cannot be taken out."""
    made = [rf"\A(?:[^{_TAG}]|{_TAG}[^{_TAG}]{_TAG})*?(?:"]
    dotall = [False]
    for token in tokens:
        if token.kind in ("char", "dot", "class"):
            unit = _unit(token, dotall[-1])
            if unit is None:
                return None
            made.append(f"(?:{unit}|{_TAG}{unit}{_TAG})")
            continue
        made.append(token.text)
        if token.kind == "close":
            del dotall[max(1, len(dotall) - 1) :]
        elif token.kind == "open":
            dotall.append(dotall[-1])
        elif token.kind == "flags":
            on, _, off = token.text[2:-1].partition("-")
            now = (dotall[-1] or "s" in on) and "s" not in off
            if token.text.endswith(":"):
                dotall.append(now)
            else:
                dotall[-1] = now
    return "".join(made) + ")"


def _unit(token: _Token, dotall: bool) -> str | None:
    """What matches one character, and never a tag."""
    if token.kind == "dot":
        return f"[^{_TAG}]" if dotall else rf"[^{_TAG}\n]"
    if token.kind == "char":
        return _UNDERSCORE if _matches_tag(token.text) else token.text
    negated, items = _items(token.text) if token.text.startswith("[") else (False, [token.text])
    if not negated and len(items) == 1 and items[0] in (r"\D", r"\W", r"\S"):
        negated, items = True, [items[0].lower()]
    elif not negated and len(items) == 1 and items[0].startswith(r"\P"):
        negated, items = True, [r"\p" + items[0][2:]]
    inside = []
    for item in items:
        if not _matches_tag(f"[{_in_class(item)}]"):
            inside.append(_in_class(item))
        elif item in ("_", r"\_", r"\w"):
            inside.append(_UNDERSCORE if item != r"\w" else f"{_LETTERS}{_CONNECTORS}{_UNDERSCORE}")
        elif negated:
            inside += [_in_class(item), _UNDERSCORE]
        elif _is_range(item):
            inside += [f"{item[0]}-^" if item[0] <= "^" else "", f"`-{item[2]}" if item[2] >= "`" else "", _UNDERSCORE]
        else:
            return None
    return f"[{'^' if negated else ''}{''.join(inside)}{_TAG if negated else ''}]"


def _is_range(item: str) -> bool:
    return len(item) == 3 and item[1] == "-" and item.isascii() and item[0].isalnum() and item[2].isalnum()


def _matches_tag(atom: str) -> bool:
    return re2.fullmatch(atom, _TAG, _OPTIONS) is not None
