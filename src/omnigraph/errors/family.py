"""The error family. Everything the library raises on purpose is an `OmnigraphError`."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from omnigraph.errors.source import Location, SourceText, Span, printable


class Disposition(StrEnum):
    """What a caller can sensibly do next."""

    FIX = "fix"
    """The request itself is wrong: sending it again cannot help."""
    RETRY = "retry"
    """Nothing happened, and the same request may succeed later."""
    DECIDE = "decide"
    """Nothing happened, because somebody else was first: re-read, then decide."""
    UNKNOWN = "unknown"
    """The request may or may not have taken effect: look before sending it again."""


class OmnigraphError(Exception):
    """Base of every error that the library raises on purpose. Tracebacks show the hint below the message.

    Attributes:
        code: stable identifier of the kind of error; programs match on it.
        disposition: whether to fix, retry, decide, or look first.
        hint: what to do about it, in one sentence.
        span: where in the source text, as UTF-8 byte offsets.
    """

    code: ClassVar[str] = "internal"
    disposition: Disposition = Disposition.FIX

    def __init__(self, message: str, *, hint: str | None = None, span: Span | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.span = span
        if hint:
            self.add_note(f"help: {hint}")

    @property
    def retryable(self) -> bool:
        """Whether the very same request may succeed later."""
        return self.disposition is Disposition.RETRY

    def render(self) -> str:
        """The error as a person should see it, over several lines where that helps."""
        return printable(f"{self}\n  help: {self.hint}" if self.hint else str(self))


class InputError(OmnigraphError):
    """A value that came from outside (parameter, option, file) cannot be used."""

    code = "bad_request"


class NotFoundError(OmnigraphError):
    """Something that was asked for by name does not exist."""

    code = "not_found"


class ConflictError(OmnigraphError):
    """Another writer was first, or the target already exists."""

    code = "conflict"
    disposition = Disposition.DECIDE


class RetryableError(OmnigraphError):
    """A passing condition stopped the request before it had any effect."""

    code = "retry"
    disposition = Disposition.RETRY


class OutcomeUnknownError(OmnigraphError):
    """The request may have taken effect; nobody can say from here."""

    code = "outcome_unknown"
    disposition = Disposition.UNKNOWN


class CompileError(OmnigraphError):
    """A `.pg` or `.gq` text that does not compile.

    Attributes:
        diagnostic: the stable identifier of the rule that was broken (`T6`, `OG-SC-004`), if it has one.
        source: the text that was compiled, so that the error can show the place.
    """

    code = "compile"
    family: ClassVar[str] = "compile"

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        diagnostic: str | None = None,
        hint: str | None = None,
        source: SourceText | None = None,
    ) -> None:
        super().__init__(message, hint=hint, span=span)
        self.diagnostic = diagnostic
        self._place: str | None = None
        self.source = source

    @property
    def source(self) -> SourceText | None:
        return self._source

    @source.setter
    def source(self, source: SourceText | None) -> None:
        """Tracebacks show the place above the help. A checker learns the source of its error late."""
        self._source = source
        notes = [note for note in getattr(self, "__notes__", ()) if note != self._place]
        self._place = None
        if source is not None and self.span is not None:
            self._place = printable(source.excerpt(self.span))
            notes.insert(0, self._place)
        self.__notes__ = notes

    def __str__(self) -> str:
        code = f"{self.diagnostic}: " if self.diagnostic else ""
        return f"{self.family} error: {code}{self.message}"

    @property
    def location(self) -> Location | None:
        """Line and column of the error, when the place is known."""
        if self.source is None or self.span is None:
            return None
        return self.source.locate(self.span.start)

    def render(self) -> str:
        """Message, source line with a caret, and help."""
        lines = [str(self)]
        if self.source is not None and self.span is not None:
            lines.append(self.source.excerpt(self.span))
        if self.hint:
            lines.append(f"  = help: {self.hint}")
        return printable("\n".join(lines))


class ParseError(CompileError):
    """The text does not follow the grammar."""

    code = "parse"
    family = "parse"


class CatalogError(CompileError):
    """A schema that follows the grammar but contradicts itself or names what does not exist."""

    code = "catalog"
    family = "catalog"


class TypeCheckError(CompileError):
    """A query that follows the grammar but not the schema."""

    code = "type"
    family = "type"


class PlanError(CompileError):
    """A schema change that cannot be carried out as asked."""

    code = "plan"
    family = "plan"
