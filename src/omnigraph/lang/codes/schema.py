"""The diagnostic codes of the schema language: schema errors, effects of schema changes, and lints.

A code is never reused or removed. A retired code is marked as reserved.
"""

from __future__ import annotations

from omnigraph.lang.diagnostics import Diagnostic, Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def _schema(number: int, summary: str) -> Diagnostic:
    return Diagnostic(f"OG-SC-{number:03}", _ERROR, summary)


SCHEMA_CHECKS = (
    # names
    _schema(1, "Two declarations of one kind have the same name. For edges, upper and lower case count as equal."),
    _schema(2, "A declaration has two properties of the same name."),
    _schema(3, "A property has the name of a built-in column."),
    _schema(4, "An edge begins or ends at something that is not a node type."),
    _schema(5, "A node type implements an interface that does not exist."),
    # interfaces
    _schema(6, "A node type declares a property of its interface with another type."),
    _schema(7, "Two interfaces give a node type the same property and do not agree on it."),
    # types
    _schema(8, "The dimension of a vector is zero or too large."),
    _schema(9, "A list holds items that lists cannot hold."),
    _schema(10, "An enum names a value twice."),
    _schema(11, "The former name of an enum value is still a value, or belongs to two values."),
    # annotations
    _schema(12, "An annotation is in a position where it is not allowed."),
    _schema(13, "An annotation is repeated."),
    _schema(14, "An annotation has a missing, blank, unknown or superfluous argument."),
    # constraints
    _schema(15, "A constraint or @embed names a property that does not exist."),
    _schema(16, "A type has more than one key."),
    _schema(17, "A property cannot be part of a key."),
    _schema(18, "A property cannot be part of @unique."),
    _schema(19, "A property cannot have an index, or not an index of this kind."),
    _schema(20, "An index has an option that does not exist, does not fit, or contradicts another declaration."),
    _schema(21, "@range names a property that is not a number."),
    _schema(22, "The lower bound of @range is above the upper bound, or a bound is not representable."),
    _schema(23, "@check names a property that is not a String."),
    _schema(24, "The pattern of @check is not an RE2 regular expression."),
    _schema(25, "The lower bound of @card or @card_in is above the upper bound, or a bound is too large."),
    _schema(26, "@embed is on a property that is not a vector, or its source is not a String."),
    _schema(27, "A default value does not fit its property."),
    _schema(28, "A property cannot have a default."),
    _schema(29, "The key of an edge type does not name both ends."),
    _schema(30, "@allow has no code, or no reason."),
    _schema(31, "An annotation does not exist, and its name is similar to an existing one."),
    _schema(32, "The pattern of @check has a construct that RE2 lacks or interprets differently."),
    # stored schemas
    _schema(40, "A stored schema is damaged: its parts contradict each other."),
    _schema(41, "The schema files of a graph do not belong together."),
)


def _change(code: str, tier: str, summary: str, severity: Severity = _ERROR, *, reserved: bool = False) -> Diagnostic:
    return Diagnostic(code, severity, summary, tier, reserved)


SCHEMA_CHANGES = (
    # destructive: reported as warnings, and the change is made
    _change("OG-DS-101", "destructive", "A whole graph with data is dropped.", reserved=True),
    _change("OG-DS-102", "destructive", "A node type is dropped, with its nodes.", _WARNING),
    _change("OG-DS-103", "destructive", "An edge type is dropped, with its edges.", _WARNING),
    _change("OG-DS-104", "destructive", "A property is dropped, with its values.", _WARNING),
    _change("OG-DS-105", "destructive", "A vector property is dropped; reported as OG-DS-104.", reserved=True),
    # may fail
    _change("OG-MF-103", "validated", "A required property without a default is added. Refused."),
    _change("OG-MF-104", "validated", "A nullable property becomes required; it has to be set everywhere.", _WARNING),
    _change("OG-MF-106", "destructive", "A property changes its type in a way that could lose values. Refused."),
    # constraint deletion
    _change("OG-CD-101", "safe", "A constraint is removed: rows that it rejected can be written.", _INFO),
    # incompatible with stored ids
    _change("OG-BC-101", "destructive", "The key of a type is added, removed or changed. Refused."),
    _change("OG-BC-102", "destructive", "A property of a key changes so that ids would change. Refused."),
    _change(
        "OG-BC-103",
        "destructive",
        "Two schemas differ in a way that no step describes. Refused.",
        reserved=True,
    ),
    # naming
    _change("OG-NM-101", "destructive", "@rename_from names something that did not exist. Refused."),
    _change("OG-NM-102", "destructive", "@rename_from names a declaration of another kind. Refused."),
    _change(
        "OG-NM-103", "destructive", "@rename_from gives a name that another declaration has or had before. Refused."
    ),
    # ownership
    _change("OG-OW-101", "destructive", "@rename_from names a property of another type. Refused."),
    _change("OG-OW-102", "destructive", "@rename_from is on a property of a new type. Refused."),
    # vectors
    _change("OG-VE-101", "safe", "@embed changes; stored vectors are stale until they are computed again.", _INFO),
    # edge topology
    _change("OG-ED-101", "destructive", "An edge type begins or ends at another node type. Refused."),
)


def _lint(code: str, summary: str) -> Diagnostic:
    return Diagnostic(code, _WARNING, summary)


LINTS = (
    _lint("L210", "No edge type begins or ends at a node type."),
    _lint("L211", "An edge type has neither @key nor @unique(src, dst), so the same edge can be stored twice."),
    _lint("L212", "A vector has neither @embed nor @index."),
    _lint("L213", "@allow names a code that does not exist."),
    _lint("L214", "An annotation is unknown to OmniGraph."),
)

CODES: dict[str, Diagnostic] = {diagnostic.code: diagnostic for diagnostic in (*SCHEMA_CHECKS, *SCHEMA_CHANGES, *LINTS)}
