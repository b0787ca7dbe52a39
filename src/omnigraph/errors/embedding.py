"""Errors of turning texts into vectors."""

from __future__ import annotations

from omnigraph.errors.family import Disposition, OmnigraphError


class EmbeddingError(OmnigraphError):
    """A text could not be turned into a vector: wrong settings, or an answer that is no vector. Nothing was written.

    Attributes:
        subject: the type and property that the vector is for, when it is known.
    """

    code = "embedding"

    def __init__(self, message: str, *, hint: str | None = None, subject: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.subject = subject

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" if self.subject else self.message


class EmbeddingModelError(EmbeddingError):
    """The schema records another model for a vector than the one that is configured, or one of another size."""

    code = "embedding_model"


class EmbeddingUnavailableError(EmbeddingError):
    """The embedding provider was busy or out of reach for as long as it was waited for. Nothing was written."""

    code = "embedding_unavailable"
    disposition = Disposition.RETRY
