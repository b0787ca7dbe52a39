"""Errors of the pipeline: Spark that cannot be had, and work on it that failed."""

from __future__ import annotations

from omnigraph.errors.family import InputError, OmnigraphError


class SparkUnavailableError(InputError):
    """Spark cannot be started here: it is not installed, or Java is not, or what it was told cannot be used."""

    code = "spark_unavailable"


class SparkError(OmnigraphError):
    """Work on Spark failed, after Spark had tried again. The graph is as it was.

    Attributes:
        log: the file that says more, when there is one.
    """

    code = "spark"

    def __init__(self, message: str, *, hint: str | None = None, log: str | None = None) -> None:
        more = f"the log is {log}" if log else None
        super().__init__(message, hint="; ".join(part for part in (hint, more) if part) or None)
        self.log = log
