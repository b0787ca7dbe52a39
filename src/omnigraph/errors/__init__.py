"""Errors: the family, the places they point at, and how each surface reports them."""

from omnigraph.errors.family import (
    CatalogError,
    CompileError,
    ConflictError,
    Disposition,
    InputError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    ParseError,
    PlanError,
    RetryableError,
    TypeCheckError,
)
from omnigraph.errors.source import Location, SourceText, Span
from omnigraph.errors.table import REPORTS, Report, report_for

__all__ = [
    "REPORTS",
    "CatalogError",
    "CompileError",
    "ConflictError",
    "Disposition",
    "InputError",
    "Location",
    "NotFoundError",
    "OmnigraphError",
    "OutcomeUnknownError",
    "ParseError",
    "PlanError",
    "Report",
    "RetryableError",
    "SourceText",
    "Span",
    "TypeCheckError",
    "report_for",
]
