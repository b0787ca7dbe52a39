"""Errors of the pipeline: Spark that cannot be had, work on it that failed, and checks that do not hold."""

from __future__ import annotations

from omnigraph.errors.family import InputError, OmnigraphError
from omnigraph.errors.source import printable


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


class PipelineCheckError(OmnigraphError):
    """What a declared pipeline checks does not hold. The base is as it was.

    Attributes:
        branch: where the rows are; None when nothing was written.
        failures: what does not hold.
    """

    code = "pipeline_check"

    def __init__(self, pipeline: str, branch: str | None, failures: tuple[str, ...]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        where = "nothing was written" if branch is None else f"nothing was merged: the rows are on branch '{branch}'"
        super().__init__(
            f"pipeline '{pipeline}': {failures[0]}{more}",
            hint=f"{where}; correct the branch or the input, and run it again",
        )
        self.branch = branch
        self.failures = failures

    def render(self) -> str:
        """All of them, one a line."""
        return "\n".join(printable(line) for line in (*self.failures, f"  help: {self.hint}"))
