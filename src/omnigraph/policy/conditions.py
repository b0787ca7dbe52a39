"""Conditions of row rules: compiled with the query language, and type-checked against a schema."""

# See docs/decisions/0303-row-conditions-are-those-of-delete.md

from __future__ import annotations

import re

from omnigraph.errors import CompileError, PolicyError
from omnigraph.lang.documents import Value
from omnigraph.lang.query import compile_queries, ir, parse_queries
from omnigraph.lang.query.ast import Delete, Now, Write
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import AcceptedSchema, Catalog
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.policy.bundle import RowRule
from omnigraph.restricted import rule_names

ACTOR, GROUPS = "actor", "groups"
"""The parameters of conditions: the actor, and the names of its groups."""

_SELF = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\n]*|/\*.*?\*/|(?P<self>\$\.)(?=\s*\w)', re.DOTALL)
"""Strings and comments, which stay as they are, and the `$.` before a property."""

_HINT = "a condition is an expression on properties of the row: $.owner = $actor and $.level < 3"


def compile_condition(rule: RowRule, document: str, key: str, catalog: Catalog) -> ir.Expr:
    """Compile the condition of a rule.

    Args:
        rule: the rule. It has a condition.
        document: the name of the bundle, for errors.
        key: the key of the type.
        catalog: the schema.

    Raises:
        PolicyError: the condition does not fit the type.
    """
    assert rule.where is not None
    kind, name = TypeKey.parse(key)
    try:
        (query,) = compile_queries(_source(rule.where, f"{kind.value} {name}"), catalog).values()
    except CompileError as error:
        place = document if rule.line is None else f"{document}, line {rule.line}"
        raise PolicyError(f"{place}: where: {error.message} (rule '{rule.id}')", hint=error.hint) from None
    assert isinstance(query.body, ir.Write)
    (statement,) = query.body.statements
    assert isinstance(statement, ir.Delete)
    return statement.where


def condition_in(
    rule: RowRule, document: str, key: str, named: str, accepted: AcceptedSchema, reference: AcceptedSchema
) -> ir.Expr | None:
    """The condition of a rule for the schema of a state.

    The names in a condition are those of the reference schema. A property that has another name in the state is found
    by its number.

    Args:
        rule: the rule. It has a condition.
        document: the name of the bundle, for errors.
        key: the key of the type in the state.
        named: the key of the type in the reference schema.
        accepted: the schema of the state.
        reference: the reference schema.

    Returns:
        The condition; None if the state does not have a property of the condition, or has it with another type.

    Raises:
        PolicyError: the condition does not fit the type in the reference schema.
    """
    known = reference.identities.get(TypeKey.parse(named))
    if known is None or accepted is reference:
        return compile_condition(rule, document, key, accepted.catalog)
    condition = compile_condition(rule, document, named, reference.catalog)
    return rule_names.condition_in(condition, key, named, accepted, reference)


def check_syntax(where: str, value: Value) -> None:
    """Check that a text is one condition.

    Raises:
        InputError: it is not.
    """
    try:
        queries = parse_queries(_source(where, "node T")).queries
    except CompileError as error:
        raise value.error(error.message, error.hint or _HINT) from None
    if any(isinstance(part, Now) for part in walk(queries)):
        raise value.error("a condition on rows may not use now()", "the visible rows of a state must not change")
    body = queries[0].body
    if len(queries) != 1 or not isinstance(body, Write) or len(body.statements) != 1:
        raise value.error("this is more than a condition", _HINT)
    assert isinstance(body.statements[0], Delete)


def _source(where: str, of: str) -> str:
    """A query whose only condition is that of a rule. `$.` becomes two spaces, so that columns stay the same."""
    text = _SELF.sub(lambda match: "  " if match["self"] else match[0], where)
    return f"query rule(${ACTOR}: String, ${GROUPS}: [String]) {{ delete {of} where\n{text}\n}}"
