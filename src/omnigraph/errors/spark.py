"""Errors of the pipeline: Spark is not available, a job failed, or a check of a declared pipeline failed."""

from __future__ import annotations

from omnigraph.errors.family import InputError, OmnigraphError
from omnigraph.errors.source import printable


class SparkUnavailableError(InputError):
    """Spark cannot be started: Spark or Java is not installed, or a setting is invalid."""

    code = "spark_unavailable"


class SparkError(OmnigraphError):
    """A Spark job failed after all retries. The graph is unchanged.

    Attributes:
        log: the path of the log file, if there is one.
    """

    code = "spark"

    def __init__(self, message: str, *, hint: str | None = None, log: str | None = None) -> None:
        more = f"the log is {log}" if log else None
        super().__init__(message, hint="; ".join(part for part in (hint, more) if part) or None)
        self.log = log


class PipelineCheckError(OmnigraphError):
    """A check of a declared pipeline failed. The base branch is unchanged.

    Attributes:
        branch: the branch with the loaded rows; None if nothing was written.
        failures: the failed checks.
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
        """All failed checks, one per line, and the hint."""
        return "\n".join(printable(line) for line in (*self.failures, f"  help: {self.hint}"))
