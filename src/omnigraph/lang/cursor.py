"""The base class of both parsers: a position in the token list, and errors about unexpected tokens."""

# See docs/decisions/0005-bounds-of-a-text.md

from __future__ import annotations

from omnigraph.errors import ParseError, Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.tokens import Tokens, unquote

MAX_DEPTH = 100
"""Maximum nesting of parentheses and blocks. It limits the recursion in the parser and in all tree walks."""

_DESCRIPTIONS = {
    "type": "a type name (upper-case first letter)",
    "name": "a name (lower-case first letter)",
    "var": "a variable ($name)",
    "at": "an annotation (@name)",
    "int": "an integer",
    "float": "a number",
    "string": "a string",
    "end": "the end of the text",
}

_WORDS_OF_OTHERS = frozenset({"from", "into", "vertex"})
"""Words that precede the name of a type in other languages."""


class Cursor:
    """A position in a token list. Both parsers are subclasses."""

    __slots__ = ("depth", "ends", "i", "kinds", "source", "starts", "texts", "tokens")

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.source = tokens.source
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.starts = tokens.starts
        self.ends = tokens.ends
        self.i = 0
        self.depth = 0

    def span_from(self, start: int) -> Span:
        """The span from token `start` to the last consumed token."""
        return Span(self.starts[start], self.ends[max(start, self.i - 1)])

    def here(self) -> Span:
        """The span of the next token."""
        return Span(self.starts[self.i], self.ends[self.i])

    def at_word(self, word: str) -> bool:
        """Whether the next token is this word. Keywords are not reserved, so each rule tests for its own keywords."""
        return self.texts[self.i] == word and self.kinds[self.i] == "name"

    def accept(self, kind: str) -> bool:
        """Consume the next token if it is of this kind."""
        if self.kinds[self.i] == kind:
            self.i += 1
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Consume the next token if it is this word."""
        if self.texts[self.i] == word and self.kinds[self.i] == "name":
            self.i += 1
            return True
        return False

    def expect(self, kind: str, purpose: str | None = None) -> str:
        """Consume the next token, which must be of this kind, and return its text."""
        i = self.i
        if self.kinds[i] != kind:
            hint = _case_hint(kind, self.kinds[i], self.texts[i])
            raise self.unexpected(purpose or _DESCRIPTIONS.get(kind, f"'{kind}'"), hint=hint)
        self.i = i + 1
        return self.texts[i]

    def expect_word(self, word: str) -> None:
        if not self.accept_word(word):
            raise self.unexpected(f"'{word}'", words=[word])

    def expect_string(self, purpose: str | None = None) -> str:
        index = self.i
        return unquote(self.expect("string", purpose), self.tokens.span(index), self.source)

    def found(self) -> str:
        """The next token, as quoted in errors."""
        kind, text = self.kinds[self.i], self.texts[self.i]
        if kind == "end":
            return "the end of the text"
        if len(text) > 40:
            text = text[:40] + "…"
        return f"'@{text}'" if kind == "at" else text if kind == "string" else f"'{text}'"

    def unexpected(self, expected: str, *, words: list[str] | None = None, hint: str | None = None) -> ParseError:
        """An error at the next token.

        Args:
            expected: a phrase for the expected token.
            words: the allowed words. The error suggests the most similar one.
            hint: a hint to use instead of the suggestion.
        """
        if hint is None and words and self.kinds[self.i] in ("name", "type"):
            near = did_you_mean(self.texts[self.i], words)
            hint = near if near and near.startswith("did") else None
        return self.error(f"expected {expected}, found {self.found()}", hint=hint)

    def error(self, message: str, *, span: Span | None = None, hint: str | None = None) -> ParseError:
        """A parse error at a span, by default at the next token."""
        return ParseError(message, span=span or self.here(), source=self.source, hint=hint)

    def descend(self) -> None:
        """Enter a level of nesting. Pair with `ascend`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(
                f"nested deeper than {MAX_DEPTH} levels", hint="name intermediate results, or split the query"
            )

    def ascend(self) -> None:
        self.depth -= 1


def _case_hint(wanted: str, found: str, text: str) -> str | None:
    """The name with the first letter of the other case, if that makes it a name of the wanted kind."""
    if (wanted, found) == ("type", "name") and text[0].isalpha() and text not in _WORDS_OF_OTHERS:
        return f"a type name has an upper-case first letter: {text[0].upper()}{text[1:]}"
    if (wanted, found) == ("name", "type"):
        return f"this name has a lower-case first letter: {text[0].lower()}{text[1:]}"
    return None
