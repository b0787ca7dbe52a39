"""Errors of embedding texts."""

from __future__ import annotations

from omnigraph.errors.family import Disposition, OmnigraphError


class EmbeddingError(OmnigraphError):
    """A text could not be embedded: settings are wrong, or the provider sent an invalid response. Nothing was written.

    Attributes:
        subject: the type and property of the vector, if known.
    """

    code = "embedding"

    def __init__(self, message: str, *, hint: str | None = None, subject: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.subject = subject

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" if self.subject else self.message


class EmbeddingModelError(EmbeddingError):
    """The configured model is not the model that the schema records, or has another number of dimensions."""

    code = "embedding_model"


class EmbeddingUnavailableError(EmbeddingError):
    """The embedding provider was busy or not reachable until the timeout. Nothing was written."""

    code = "embedding_unavailable"
    disposition = Disposition.RETRY
