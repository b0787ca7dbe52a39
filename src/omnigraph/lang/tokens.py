"""The tokenizer of both languages.

Tokens are stored in parallel lists, not as objects. A parser reads kinds and texts far more often than spans, and list
lookups are fast.

The kind of a token is one of the words below, or the punctuation itself:

    type     TypeName     upper-case first letter
    name     name         lower-case first letter or underscore
    var      $name        (queries)
    at       @name        (schemas and query notes); text is the name without @
    int, float, string    literals; a string's text is still quoted and escaped
    end                   after the last token; its text is empty
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import NamedTuple

from omnigraph.dataclass import dataclass
from omnigraph.errors import ParseError, SourceText, Span

MAX_SOURCE_BYTES = 4 * 1024 * 1024
"""Maximum size of a source text, far above real files. It limits time and memory."""

# Comments and strings use possessive quantifiers (*+, ++), so that an unterminated one fails without backtracking.
_COMMON = r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>//[^\n]* | /\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)
  | (?P<name>[a-z_][A-Za-z0-9_]*)
  | (?P<type>[A-Z][A-Za-z0-9_]*)
  | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
  | @(?P<at>[a-z_][A-Za-z0-9_]*)
"""

_SCHEMA = re.compile(
    _COMMON
    + r"""
  | (?P<float>[0-9]+\.[0-9]+)
  | (?P<int>[0-9]+)
  | (?P<punct>->|\.\.|[{}()\[\]:,?=@-])
""",
    re.VERBOSE | re.DOTALL,
)

_QUERY = re.compile(
    _COMMON
    + r"""
  | (?P<var>\$[a-z_][A-Za-z0-9_]*)
  | (?P<float>[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
  | (?P<int>[0-9]+)
  | (?P<punct>>=|<=|!=|/(?!\*)|[{}()\[\]:,.?=@<>|*%+-])
""",
    re.VERBOSE | re.DOTALL,
)


class Comment(NamedTuple):
    """A comment. The formatter needs it."""

    text: str
    span: Span


@dataclass(slots=True)
class Tokens:
    """The tokens of one source text, ending with an `end` token."""

    source: SourceText
    kinds: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)

    def span(self, index: int) -> Span:
        return Span(self.starts[index], self.ends[index])


def schema_tokens(source: SourceText) -> Tokens:
    """The tokens of a `.pg` text."""
    return _tokenize(source, _SCHEMA)


def query_tokens(source: SourceText) -> Tokens:
    """The tokens of a `.gq` text."""
    return _tokenize(source, _QUERY)


def read_source(text: str | bytes, name: str | None = None) -> SourceText:
    """Convert text or UTF-8 bytes to a source, and check its size.

    Raises:
        ParseError: the bytes are not UTF-8, or the text is too long.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(data) > MAX_SOURCE_BYTES:
        raise ParseError(
            f"the text has {len(data):,} bytes; at most {MAX_SOURCE_BYTES:,} are compiled",
            span=Span(MAX_SOURCE_BYTES, MAX_SOURCE_BYTES + 1),
            source=SourceText(data[: MAX_SOURCE_BYTES + 1].decode(errors="replace"), name),
            hint="split it into several files",
        )
    try:
        return SourceText(data.decode(), name)
    except UnicodeDecodeError as error:
        shown = SourceText(data.decode(errors="replace"), name)
        raise ParseError(
            f"the text is not UTF-8: {error.reason}",
            span=Span(error.start, error.end),
            source=shown,
            hint="save the file as UTF-8",
        ) from None


def _tokenize(source: SourceText, pattern: re.Pattern[str]) -> Tokens:
    text = source.text
    tokens = Tokens(source)
    kinds, texts, starts, ends = tokens.kinds, tokens.texts, tokens.starts, tokens.ends
    position = 0
    comments: list[tuple[str, int, int]] = []
    for match in iter(pattern.scanner(text).match, None):  # type: ignore[attr-defined]
        kind = match.lastgroup
        position = match.end()
        if kind == "space":
            continue
        if kind == "comment":
            comments.append((match[0], match.start(), position))
            continue
        word = match[kind]
        kinds.append(word if kind == "punct" else kind)
        texts.append(word)
        starts.append(match.start())
        ends.append(position)
    if position != len(text):
        raise _lexical_error(source, position)
    kinds.append("end")
    texts.append("")
    starts.append(position)
    ends.append(position)
    if not text.isascii():
        tokens.starts, tokens.ends = _byte_offsets(text, starts), _byte_offsets(text, ends)
    if comments:
        begins, stops = [s for _, s, _ in comments], [e for _, _, e in comments]
        if not text.isascii():
            begins, stops = _byte_offsets(text, begins), _byte_offsets(text, stops)
        words = [word for word, _, _ in comments]
        tokens.comments = [Comment(*c) for c in zip(words, map(Span, begins, stops), strict=True)]
    if len(kinds) > 1:
        # An error at the end of the text needs a location inside the text: the last byte of the last token.
        tokens.starts[-1], tokens.ends[-1] = tokens.ends[-2] - 1, tokens.ends[-2]
    return tokens


def _byte_offsets(text: str, positions: list[int]) -> list[int]:
    """The byte offsets of ascending character positions."""
    offsets = []
    done = total = 0
    for position in positions:
        total += len(text[done:position].encode())
        done = position
        offsets.append(total)
    return offsets


def _lexical_error(source: SourceText, position: int) -> ParseError:
    text = source.text
    start = len(text[:position].encode())
    rest = text[position : position + 2]
    char = rest[0]
    span = Span(start, start + len(char.encode()))
    if char == '"':
        return ParseError("this string has no closing quote", span=span, source=source)
    if rest == "/*":
        return ParseError("this comment has no closing */", span=span, source=source)
    hint = {
        "'": 'strings take double quotes: "…"',
        "#": "comments begin with // or are enclosed in /* */",
        ";": "no separator is needed here; remove it",
        ".": "a point is only allowed between the digits of a number: 0.5",
        "+": "numbers are written without a plus sign, and there is no arithmetic here",
        "$": "a variable is $ and a name that begins with a lower-case letter or _",
        "&": "write 'and'",
        "|": "write 'or'",
        "!": "write 'not', or != for 'differs from'",
        "\ufeff": "the file begins with a byte order mark; save it as UTF-8 without one",
    }.get(char)
    if char == "$" and (rest[1:].islower() or rest[1:] == "_"):  # a valid variable, so this is not a query file
        hint = "a schema has no variables; is this a query?"
    if hint is None and char.isalpha():
        hint = "names are written with the letters a to z, digits and '_'"
    return ParseError(f"unexpected character {char!r}", span=span, source=source, hint=hint)


_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def unquote(token: str, span: Span, source: SourceText) -> str:
    """The value of a string token."""
    body = token[1:-1]
    if "\\" not in body:
        return body
    for match in _ESCAPE.finditer(body):
        if match[1] not in _ESCAPES:
            at = span.start + 1 + len(body[: match.start()].encode())
            raise ParseError(
                f"unknown escape {match[0]} in a string",
                span=Span(at, at + len(match[0].encode())),
                source=source,
                hint=r"the escapes are \" \\ \n \r \t",
            )
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], body)


def quote(value: str) -> str:
    r"""Quote a string as both languages do.

    >>> quote('say "hi"')
    '"say \\"hi\\""'
    """
    return f'"{value.translate(_QUOTED)}"'
