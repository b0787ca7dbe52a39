"""Errors of running a query: invalid parameters, values that cannot be computed, exceeded budgets, cancellation."""

from __future__ import annotations

from omnigraph.errors.family import InputError, RetryableError

_MIB = 1 << 20
_LARGEST = (1 << 63) - 1


class ParameterError(InputError):
    """A parameter is missing, or its value does not have the declared type. The query did not run.

    Attributes:
        parameter: the name, without `$`.
    """

    code = "parameter"

    def __init__(self, parameter: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"${parameter}: {message}", hint=hint)
        self.parameter = parameter


class ExecutionError(InputError):
    """An expression cannot be computed for some row: a number is too large, or a pattern is invalid."""

    code = "execution"
    PREFIX = "query: "
    """The start of the text of every such error. Clients know it."""

    def __str__(self) -> str:
        return f"{self.PREFIX}{self.message}"


class BudgetExceededError(InputError):
    """A query exceeds its budget, or would exceed it. Nothing is returned.

    Attributes:
        resource: the exceeded limit: `seconds`, `bytes`, `bytes on disk`, `rows` or `rows of result`.
        limit: the allowed amount.
        actual: the amount at which the query was stopped, or the estimated amount; at most 2^63 - 1.
    """

    code = "budget_exceeded"

    def __init__(self, resource: str, limit: float, actual: float, *, hint: str | None = None) -> None:
        actual = min(actual, _LARGEST)  # the size of a product of many types may be a number that JSON cannot have
        # The query was stopped when it asked for this much memory or time; it may need more.
        least = "at least " if resource != "rows of result" and not resource.endswith("disk") else ""
        super().__init__(
            f"the query needs {least}{_formatted(actual, resource)}, but its budget is {_formatted(limit, resource)}",
            hint=hint or "make it more selective, or give it a larger budget",
        )
        self.resource = resource
        self.limit = limit
        self.actual = actual


def _formatted(amount: float, resource: str) -> str:
    if resource.startswith("bytes"):
        size = f"{amount / _MIB:,.1f} MiB" if amount >= _MIB else f"{amount:,.0f} byte{'' if amount == 1 else 's'}"
        return f"{size} {'of memory' if resource == 'bytes' else 'on disk'}"
    if resource == "seconds":
        return f"{amount:,.3f}".rstrip("0").rstrip(".") + " seconds"
    return f"{amount:,.0f} {resource.replace('rows', 'row') if amount == 1 else resource}"


class CancelledError(RetryableError):
    """The caller cancelled the query. Nothing is returned."""

    code = "cancelled"
