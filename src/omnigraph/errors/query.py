"""Errors of running a query: a parameter that cannot be used, or a value that cannot be computed."""

from __future__ import annotations

from omnigraph.errors.family import InputError


class ParameterError(InputError):
    """A parameter is missing, or its value is none of its declared type. Nothing ran.

    Attributes:
        parameter: the name, without `$`.
    """

    code = "parameter"

    def __init__(self, parameter: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"${parameter}: {message}", hint=hint)
        self.parameter = parameter


class ExecutionError(InputError):
    """An expression has no value for some row: a number that is too large, a pattern that is none."""

    code = "execution"

    def __str__(self) -> str:
        return f"execution error: {self.message}"
