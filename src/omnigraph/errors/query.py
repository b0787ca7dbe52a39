"""Errors of running a query: a parameter that cannot be used, or a value that cannot be computed."""

from __future__ import annotations

from omnigraph.errors.family import InputError, RetryableError

_MIB = 1 << 20


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


class BudgetExceededError(InputError):
    """A query took more than it may, or would have. Nothing is returned.

    Attributes:
        resource: what there was too much of: `seconds`, `bytes`, `bytes on disk`, `rows` or `rows of result`.
        limit: how much it may take.
        actual: how much it had taken when it was stopped, or was about to take.
    """

    code = "budget_exceeded"

    def __init__(self, resource: str, limit: float, actual: float, *, hint: str | None = None) -> None:
        super().__init__(
            f"the query takes {_much(actual, resource)}, and may take {_much(limit, resource)}",
            hint=hint or "make it more selective, or give it a larger budget",
        )
        self.resource = resource
        self.limit = limit
        self.actual = actual


def _much(amount: float, resource: str) -> str:
    if resource.startswith("bytes"):
        size = f"{amount / _MIB:,.1f} MiB" if amount >= _MIB else f"{amount:,.0f} byte{'' if amount == 1 else 's'}"
        return f"{size} {'of memory' if resource == 'bytes' else 'on disk'}"
    if resource == "seconds":
        return f"{amount:,.3f} seconds"
    return f"{amount:,.0f} {resource.replace('rows', 'row') if amount == 1 else resource}"


class CancelledError(RetryableError):
    """A query was stopped from outside. Nothing is returned."""

    code = "cancelled"
