"""Interface expansion: the properties that a node type inherits from its interfaces."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lang.schema import ast
from omnigraph.lang.schema.annotations import canonical_annotations
from omnigraph.lang.schema.owner import Owner
from omnigraph.lang.schema.problems import Problems
from omnigraph.lang.schema.properties import Source, value_type

Contract = Mapping[str, ast.Property]
"""The properties of one interface, by name."""


def implemented(problems: Problems, node: ast.Node, contracts: Mapping[str, Contract]) -> dict[str, ast.Name]:
    """The existing interfaces of a node type by name, with the spans of their names."""
    found: dict[str, ast.Name] = {}
    for name in node.implements:
        if name.text in contracts:
            found.setdefault(name.text, name)
            continue
        problems.report(
            "OG-SC-005",
            f"node '{node.name.text}' implements '{name.text}', which is not an interface",
            name.span,
            unknown=(name.text, contracts),
            hint="declare it: interface " + name.text + " { … }",
        )
    return dict(sorted(found.items()))


def expand(
    problems: Problems,
    owner: Owner,
    declared: Mapping[str, ast.Property],
    interfaces: Mapping[str, ast.Name],
    contracts: Mapping[str, Contract],
) -> dict[str, Source]:
    """The declared properties of a node type, and the inherited properties of its interfaces.

    A declared property keeps its annotations. A property that two interfaces supply must be the same in both.
    """
    sources = {name: Source(tree) for name, tree in declared.items()}
    for interface, named_at in interfaces.items():
        for name, tree in contracts[interface].items():
            known = sources.get(name)
            if known is None:
                sources[name] = Source(tree, interface, ((interface, name),))
            elif known.through is None and not _same_type(known.tree, tree):
                problems.report(
                    "OG-SC-006",
                    f"{owner}: '{name}' is {value_type(known.tree.type)}, "
                    f"and interface '{interface}' has it as {value_type(tree.type)}",
                    known.tree.type.span,
                    hint="use the same type, or remove the property: the interface supplies it",
                )
            elif known.through is not None and not _same(known.tree, tree):
                problems.report(
                    "OG-SC-007",
                    f"{owner}: interfaces '{known.through}' and '{interface}' disagree about '{name}'",
                    named_at.span,
                    hint=f"declare '{name}' in the node type, or make both declarations the same",
                )
            else:
                sources[name] = Source(known.tree, known.through, (*known.satisfies, (interface, name)))
    return sources


def _same_type(left: ast.Property, right: ast.Property) -> bool:
    return value_type(left.type) == value_type(right.type)


def _same(left: ast.Property, right: ast.Property) -> bool:
    return _same_type(left, right) and canonical_annotations(left.annotations) == canonical_annotations(
        right.annotations
    )
