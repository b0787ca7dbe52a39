"""The diagnostic codes of `.gq`."""

from __future__ import annotations

from omnigraph.lang.diagnostics import Diagnostic, Severity

_ERRORS = {
    "T1": "the type of a pattern is neither a node type nor an interface",
    "T2": "an entry in braces (`$p: Type { name: value }`) names a property that the type does not declare",
    "T3": "a literal that does not fit its target: the type, enum, null, vector length or range of a property or "
    "parameter; an entry in braces that compares a list, Vector or Blob",
    "T4": "a traversal with an edge name that no edge type has",
    "T5": "the ends of a traversal do not fit the edge",
    "T6": "a property access on an unknown variable, or of a property that is not declared",
    "T7": "values that cannot be compared or assigned to each other",
    "T8": "an aggregate whose argument has the wrong type",
    "T9": "a `not`, `exists` or `count` block that uses no variable from outside it, or a projection that cannot be a "
    "grouping key",
    "T10": "a mutation of an unknown type, or one that assigns nothing",
    "T11": "a mutation that assigns or tests a property that is not declared, or tests a Blob",
    "T12": "an insert without a required property, a key member or an endpoint",
    "T13": "a property that is assigned twice",
    "T14": "a mutation that uses a variable which is not a declared parameter",
    "T15": "hop bounds out of order, or a `nearest` whose target or query is not a vector of the right dimension",
    "T16": "an update of a key member or an endpoint",
    "T17": "an order by `nearest` without a limit",
    "T18": "an order by both `nearest` and an alias",
    "T19": "`search` or `fuzzy` with arguments of the wrong type",
    "T20": "`match_text` or `bm25` with arguments of the wrong type",
    "T21": "`rrf` with wrong arguments, weights or k, or without a limit",
    "T22": "an undirected traversal of an edge between two types",
    "T23": "an edge variable where it is not allowed",
    "T24": "a Blob as a value that is read",
    "T25": "a variable that would have to be of two types",
    "T26": "a variable that is not bound",
    "T27": "a parameter whose name is taken or reserved, or whose type is unknown",
    "T28": "a list literal that is nested, mixed or holds null",
    "T29": "two result columns with the same name",
    "T30": "a projection or sort key that cannot be computed",
    "T31": "an unknown function, or a function or operator with arguments of the wrong number or type",
    "T32": "a rank function where it is not allowed, or together with another sort key",
    "T33": "a filter that is not boolean, a text filter that is used as a value, or an `exists` or `count` block where "
    "it is not allowed",
    "T34": "an `optional` block that is not connected to the clauses before it",
    "T35": "a path variable where it is not allowed, or a path without a hop range",
    "T36": "a `limit` or `offset` that is not a whole number",
    "T37": "`having` without an aggregate, or one that uses values of rows instead of groups",
    "T38": "a query that both writes and deletes",
    "T39": "a `merge` into a type without a key",
    "T40": "two queries with the same name in a file",
    "T41": "a date, datetime or integer literal that is not valid",
    "T42": "a regular expression that is not valid",
    "T43": "an entry of `with` that cannot go on: a value without a name, a renamed variable, or `$v.*`",
    "T44": "a hop range over several edge types, one of which has a direction that depends on the type of the start",
}

_WARNINGS = {
    "L201": "a nullable property that no update query of the file sets",
    "L202": "a parameter that is not used",
    "L203": "a variable that is used nowhere else",
    "L204": "two groups of variables that are not connected, so that the result is their cross product",
    "L205": "a limit without an order: which rows are kept is arbitrary",
    "L207": "a hop range that no traversal can reach",
    "L208": "an optional block whose variables are required later, so that it is not optional",
    "L209": "a mutation that sets a property to its default",
    "L215": "a hop range that is longer than every possible traversal",
    "L216": "an ascending order by a bm25 or rrf column, which puts the best results last",
    "L217": "a value of a stage that no later clause uses",
    "L218": "a variable with the name of a variable that ended at `with`",
}

_INFOS = {
    "L206": "a filter or rank that no index supports",
}

CODES: dict[str, Diagnostic] = {
    code: Diagnostic(code, severity, summary)
    for severity, rules in (
        (Severity.ERROR, {"Q000": "the text does not parse"} | _ERRORS),
        (Severity.WARNING, _WARNINGS),
        (Severity.INFO, _INFOS),
    )
    for code, summary in rules.items()
}
