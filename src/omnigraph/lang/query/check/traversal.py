"""Check traversals: edge types, directions, and the types of both ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.errors import Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.scope import Scope, Variable, VarKind, fail
from omnigraph.lang.query.check.walks import Conflict, directions
from omnigraph.lang.query.expressions import OPERATOR_WORDS
from omnigraph.lang.query.ir import Direction, Step
from omnigraph.lang.schema.catalog import Catalog, EdgeType


def traversal(clause: ast.Traversal, scope: Scope, filters: list[ir.Expr]) -> ir.Expand:
    """Check a traversal. An unbound end gets its types from the edge.

    A filter that is always false is added to `filters` if no hop range of the traversal has a match.
    """
    catalog = scope.context.catalog
    edges = _edges(clause, catalog)
    hops = _hops(clause)
    left, right = _end(clause.left, scope), _end(clause.right, scope)
    same = clause.left.name == clause.right.name != ast.ANONYMOUS
    left_types = set(left.types) if left else None
    right_types = set(right.types) if right else None
    steps, longest = _steps(clause, edges, left_types, right_types, same=same)
    if same:
        steps = [step for step in steps if step.left_type == step.right_type]
    if not steps:
        raise _does_not_fit(clause, edges, left, right)
    if hops is not None and longest is not None:
        if hops.min > longest:
            filters.append(ir.Const(False, ir.BOOL))
        hops = _limited(hops, longest)
    reached = [step for step in steps if right_types is None or step.right_type in right_types]
    started = [step for step in steps if left_types is None or step.left_type in left_types]
    left = _narrow_end(clause.left, left, {s.left_type for s in started}, scope)
    right = left if same else _narrow_end(clause.right, right, {s.right_type for s in reached}, scope)
    return ir.Expand(
        left.name,
        right.name,
        tuple(steps),
        _edge_var(clause, edges, steps, scope),
        hops,
        _path_var(clause, scope),
    )


def _edges(clause: ast.Traversal, catalog: Catalog) -> list[EdgeType]:
    if not clause.words:
        return list(catalog.edges.values())
    edges: dict[str, EdgeType] = {}
    for word, span in zip(clause.words, _word_spans(clause), strict=True):
        edge = catalog.edge_by_word(word)
        if edge is None:
            hint = did_you_mean(word, catalog.edge_words())
            if word in OPERATOR_WORDS:
                hint = f"'{word}' compares a property or a literal: $v.property {word} …"
            raise fail("T4", f"there is no edge '{word}'", span, hint=hint)
        edges[edge.name] = edge
    return list(edges.values())


def _word_spans(clause: ast.Traversal) -> tuple[Span, ...]:
    """The spans of the edge words. A tree that was built by a program has none."""
    return clause.word_spans or (clause.word_span,) * len(clause.words)


def _word_span(clause: ast.Traversal, edge: EdgeType) -> Span:
    """The span of one edge word."""
    spans = dict(zip((word.lower() for word in clause.words), _word_spans(clause), strict=True))
    return spans.get(edge.name.lower(), clause.word_span)


def _hops(clause: ast.Traversal) -> ir.HopRange | None:
    hops = clause.hops
    if hops is None:
        if clause.path_var is not None:
            raise fail(
                "T35",
                "a shortest path needs a hop range",
                clause.word_span,
                hint=f"for example {clause.words[0] if clause.words else '(*)'}{{1,}}",
            )
        return None
    if clause.edge_var is not None:
        raise fail(
            "T23",
            "an edge variable holds one edge, so it cannot be combined with a hop range",
            hops.span,
            hint="leave the edge variable out, or bind the whole path with 'shortest $p: …'",
        )
    if hops.min < 1:
        hint = f"write {{1,{max(1, hops.max)}}}" if hops.max is not None else "write {1,}"
        raise fail("T15", "a hop range must begin at 1 or more", hops.span, hint=hint)
    if hops.max is not None and hops.max < hops.min:
        hint = f"write {{{hops.max},{hops.min}}}"
        raise fail("T15", f"the range ends ({hops.max}) before it begins ({hops.min})", hops.span, hint=hint)
    return ir.HopRange(hops.min, hops.max)


def _end(var: ast.Var, scope: Scope) -> Variable | None:
    """The variable at one end; None if it is not bound yet."""
    if var.name == ast.ANONYMOUS:
        return None
    variable = scope.find(var.name)
    if variable is None:
        return None
    if variable.kind is VarKind.EDGE:
        raise fail("T23", f"${var.name} is an edge, and a traversal joins nodes", var.span)
    if variable.kind is VarKind.PATH:
        raise fail("T35", f"${var.name} is a path, and a traversal joins nodes", var.span)
    return variable


def _narrow_end(var: ast.Var, variable: Variable | None, types: Iterable[str], scope: Scope) -> Variable:
    """Narrow the types of one end to those that the traversal allows."""
    found = tuple(sorted(types))
    if variable is None:
        return scope.bind(Variable(scope.context.fresh(var.name), VarKind.NODE, found, var.span))
    if scope.owns(variable):
        variable.types = tuple(t for t in variable.types if t in found)
    return variable


def _limited(hops: ir.HopRange, longest: int) -> ir.HopRange:
    """The part of a hop range up to the longest walk. If it is empty, a range up to the longest walk."""
    most = max(1, longest)
    return ir.HopRange(hops.min if hops.min <= most else 1, most if hops.max is None else min(hops.max, most))


def _steps(
    clause: ast.Traversal, edges: Sequence[EdgeType], left: set[str] | None, right: set[str] | None, *, same: bool
) -> tuple[Sequence[Step], int | None]:
    """All combinations of edge type and direction that fit the clause.

    Also the longest possible walk, if longer walks over these steps have to be excluded; else None.
    """
    if clause.undirected:
        return _undirected(clause, edges, left, right), None
    longest: int | None = None
    steps: Sequence[Step]
    if clause.hops is not None and len(edges) > 1:
        found = directions(edges, left, right, ir.HopRange(clause.hops.min, clause.hops.max))
        steps, longest, walked = found.steps, found.longest, found.edges
        if right is not None and not any(step.right_type in right for step in steps):
            return [], None
        if left is not None and not any(step.left_type in left for step in steps):
            return [], None
        # A walk back to its own start uses only edges within one node type, which have one direction.
        if found.conflict is not None and not same:
            raise _depends_on_start(clause, edges, found.conflict, backwards=left is None)
    else:
        steps = [step for edge in edges for step in _directions(edge, left, right)]
        walked = frozenset(step.edge for step in steps)
        if clause.hops is not None and len(walked) < len(steps):
            # An end may have either type of the edge. After one hop, no edge in this direction begins.
            longest = 1
    if clause.words:
        for edge in edges:
            if edge.name not in walked and steps:
                raise fail(
                    "T5",
                    f"{edge.word} joins {edge.from_type} and {edge.to_type}, but the variables here have other types",
                    _word_span(clause, edge),
                )
    return steps, longest


def _depends_on_start(
    clause: ast.Traversal, edges: Sequence[EdgeType], conflict: Conflict, *, backwards: bool
) -> Exception:
    """The error for a hop range whose edges have different directions for different types of the start node."""
    name = (clause.right if backwards else clause.left).name
    edge = next(edge for edge in edges if edge.name == conflict.edge)
    types = " or ".join(sorted(conflict.starts))
    message = f"${name} may be {types}: with this hop range, one walk would follow {edge.word} in both directions"
    hint = f"name one node type before the traversal, for example ${name}: {min(conflict.starts)}"
    return fail("T44", message, _word_span(clause, edge), hint=hint)


def _undirected(
    clause: ast.Traversal, edges: Sequence[EdgeType], left: set[str] | None, right: set[str] | None
) -> list[Step]:
    for edge in edges:
        if clause.words and not edge.same_type:
            raise fail(
                "T22",
                f"{edge.word} joins {edge.from_type} and {edge.to_type}: it has only one direction between them",
                _word_span(clause, edge),
                hint=f"write {edge.word} without < >",
            )
    return [
        Step(edge.name, Direction.BOTH, edge.from_type, edge.to_type)
        for edge in edges
        if edge.same_type and (left is None or edge.from_type in left) and (right is None or edge.to_type in right)
    ]


def _directions(edge: EdgeType, left: set[str] | None, right: set[str] | None) -> list[Step]:
    """The directions of one edge type that fit the types of both ends, forward first."""
    source, target = edge.from_type, edge.to_type
    forward = (left is None or source in left) and (right is None or target in right)
    reverse = (left is None or target in left) and (right is None or source in right)
    steps = []
    if forward:
        steps.append(Step(edge.name, Direction.OUT, source, target))
    if reverse and not edge.same_type and not (left is None and right is None):
        steps.append(Step(edge.name, Direction.IN, target, source))
    return steps


def _does_not_fit(
    clause: ast.Traversal, edges: Sequence[EdgeType], left: Variable | None, right: Variable | None
) -> Exception:
    if clause.left.name == clause.right.name != ast.ANONYMOUS:
        ends = [f"${clause.left.name} is both of its ends"]
    else:
        ends = [
            f"${variable.name} is {' or '.join(variable.types) or 'nothing'}"
            for variable in (left, right)
            if variable is not None
        ]
    known = " and ".join(ends)
    if len(edges) == 1:
        edge = edges[0]
        message = f"{edge.word} joins {edge.from_type} and {edge.to_type}, but {known}"
    else:
        what = "none of these edges fits" if clause.words else "no edge type fits"
        message = f"{what}: {known}" if known else what
    return fail("T5", message, clause.span)


def _edge_var(
    clause: ast.Traversal, edges: Sequence[EdgeType], steps: Sequence[Step], scope: Scope
) -> ir.EdgeVar | None:
    name = clause.edge_var
    if name is None or name == ast.ANONYMOUS:
        return None
    if name in (clause.left.name, clause.right.name) or scope.find(name) is not None:
        raise fail("T23", f"${name} is bound already, and an edge needs a variable of its own", clause.edge_var_span)
    used = {step.edge for step in steps}
    types = tuple(sorted(edge.name for edge in edges if edge.name in used))
    scope.bind(Variable(name, VarKind.EDGE, types, clause.edge_var_span))
    return ir.EdgeVar(name, types)


def _path_var(clause: ast.Traversal, scope: Scope) -> str | None:
    name = clause.path_var
    if name is None:
        return None
    if name == ast.ANONYMOUS:
        raise fail("T35", "a path needs a name; without one, leave out 'shortest $_:'", clause.path_var_span)
    if name in (clause.left.name, clause.right.name) or scope.find(name) is not None:
        raise fail("T35", f"a path needs a variable of its own, and ${name} is taken", clause.path_var_span)
    scope.bind(Variable(name, VarKind.PATH, (), clause.path_var_span))
    return name
