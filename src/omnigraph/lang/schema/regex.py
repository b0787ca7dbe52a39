r"""Regular expressions of `@check` and `matches`. RE2 matches every pattern in linear time.

RE2 supports `\w`, `\d`, `\s` and `\b` for ASCII only. `\w`, `\d` and `\s` are rewritten as Unicode properties. The word
boundary `\b` cannot be rewritten, because RE2 looks at single bytes. Instead, the text is changed, see `WordTags`.
"""

# See docs/decisions/0015-patterns-are-re2.md
# See docs/decisions/0131-patterns-are-translated-for-re2.md
# See docs/decisions/0005-bounds-of-a-text.md

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import re2

from omnigraph.dataclass import dataclass

MAX_PATTERN = 4_000
"""Maximum length of a pattern, in characters. RE2 can take a minute to compile a pattern of 100,000 characters."""

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False

_DIGIT = r"\p{Nd}"
_SPACE = r"\t-\r\x20\x{85}\p{Z}"
_LETTERS = r"\p{L}\p{M}\p{Nd}\p{Nl}\x{200C}\x{200D}"
_CONNECTORS = r"\x{203F}\x{2040}\x{2054}\x{FE33}\x{FE34}\x{FE4D}-\x{FE4F}\x{FF3F}"
"""Connector punctuation, without the underscore."""

WORD = f"{_LETTERS}{_CONNECTORS}_"
r"""The content of the class `\w`: letters, marks, digits and connectors, as in Unicode Technical Standard 18."""

_NOT_SPACE = (
    r"\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_TAG = "_"
_UNDERSCORE = "\ufdd0"
"""The replacement of underscores in tagged texts: a code point that does not occur in texts."""


@dataclass(frozen=True, slots=True)
class WordTags:
    r"""Word tags: how `\b` is matched in texts that are not ASCII.

    Every word character `c` of the text is replaced by `_c_`. The underscore is an ASCII word character, so RE2 finds
    the same word boundaries. The pattern is rewritten to match `_c_` where it matched `c`.

    Attributes:
        pattern: the pattern for tagged texts.
        word: a pattern that matches a word character. After the underscores, each match is replaced by `tagged`.
        tagged: the replacement of a word character.
        underscore: the replacement of each underscore of the text.
    """

    pattern: str
    word: str = f"([{_LETTERS}{_CONNECTORS}{_UNDERSCORE}])"
    underscore: str = _UNDERSCORE
    tagged: str = rf"{_TAG}\1{_TAG}"


@dataclass(frozen=True, slots=True)
class Pattern:
    r"""A translated pattern for RE2.

    Attributes:
        text: the pattern for ASCII texts, and for all texts if the pattern has no word boundaries.
        tags: how to match other texts, if the pattern has word boundaries.
    """

    text: str
    tags: WordTags | None = None


def pattern_error(pattern: str) -> str | None:
    """The reason why a pattern is not valid; None if it is valid.

    >>> pattern_error("^[a-z]+$") is None
    True
    >>> pattern_error("(?=x)")
    'invalid perl operator: (?='
    >>> pattern_error("a?" * 50_000)
    'it has 100,000 characters, and a pattern may have at most 4,000'
    """
    if len(pattern) > MAX_PATTERN:
        return f"it has {len(pattern):,} characters, and a pattern may have at most {MAX_PATTERN:,}"
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return misread_construct(pattern)


def misread_construct(pattern: str) -> str | None:
    """A construct that RE2 interprets differently from other engines; None if there is none, or for too long a pattern.

    >>> misread_construct("[a-z&&[^x]]")
    "'&&' in a class is not an intersection in RE2: list the characters, or write one '&'"
    """
    if len(pattern) > MAX_PATTERN:
        return None
    for token in _tokens(pattern):
        if token.kind == "class" and "&&" in token.text:
            return "'&&' in a class is not an intersection in RE2: list the characters, or write one '&'"
        if token.kind == "flags" and "U" in token.text.partition("-")[0]:
            return "(?U) makes quantifiers lazy in RE2; Unicode is always on: remove it"
        if token.text == r"\C":
            return r"\C matches a single byte in RE2, which can be a part of a character: write . or (?s:.)"
    return None


def matches_part(pattern: str, text: str) -> bool:
    """Whether a pattern matches a part of a text. `@check` uses this rule."""
    made = translated(pattern)
    if made.tags is None or text.isascii():
        return re2.search(made.text, text, _OPTIONS) is not None
    tags = made.tags
    tagged = re2.sub(tags.word, tags.tagged, text.replace("_", tags.underscore), options=_OPTIONS)
    return re2.search(tags.pattern, tagged, _OPTIONS) is not None


@lru_cache(maxsize=1024)
def translated(pattern: str) -> Pattern:
    r"""Translate a pattern, so that `\w`, `\d`, `\s` and `\b` are Unicode-aware.

    >>> translated(r"^\d+$").text
    '^[\\p{Nd}]+$'
    """
    tokens = list(_tokens(pattern))
    text = "".join(map(_plain, tokens))
    if re2_refuses(text):  # the translation is too long or wrong: use the original pattern
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


# Tokenise a pattern


class _Token(NamedTuple):
    """A token of a pattern.

    Attributes:
        kind: `char` (one character, or an escape for one), `class` (in brackets, or an escape for several), `dot`,
            `boundary`, `open`, `close`, `flags` (an opening with flags, or flags alone), `other`.
        text: the source text.
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
    """The end of the escape that starts at a position."""
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
    i += pattern[i : i + 1] == "]"  # a leading "]" is a literal character
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
    """Whether a class is negated, and its items: characters, escapes, named classes, and ranges as `a-b`."""
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


# Translate a pattern for RE2


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
    r"""The characters of `\W` as ranges. RE2 has no complement of several properties inside a class."""
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    ranges = []
    for run in re2.finditer(f"[^{WORD}]+", every, _OPTIONS):
        first, last = ord(run[0][0]), ord(run[0][-1])
        ranges.append(rf"\x{{{first:x}}}-\x{{{last:x}}}")
    return "".join(ranges)


def _tagged(tokens: list[_Token]) -> str | None:
    """The pattern for tagged texts (see `WordTags`), which contain underscores as tags only.

    None if a character class of the pattern contains the underscore and cannot be written without it.
    """
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
    """A pattern that matches the same single characters as the token, except the underscore of a tag."""
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
