"""Lint rules that look at one query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from omnigraph.errors import Span
from omnigraph.lang.diagnostics import Finding, Severity
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.scope import Context
from omnigraph.lang.query.check.write import default_value
from omnigraph.lang.query.walk import walk


def query_findings(query: ast.Query, checked: ir.Query, context: Context) -> Iterator[Finding]:
    """What looks wrong in a query that checks."""
    yield from _unused_parameters(query, context)
    if isinstance(query.body, ast.Read) and isinstance(checked.body, ir.Read):
        yield from _unused_variables(query.name, query.body)
        yield from _products(query, checked.body.match)
        yield from _arbitrary_limit(query, query.body, checked.body)
        yield from _unreachable_hops(query, checked.body.match)
        yield from _required_optionals(query, checked.body.match)
    elif isinstance(checked.body, ir.Write):
        yield from _written_defaults(query, checked.body, context)


def _warning(
    code: str, message: str, query: str, span: Span, type_name: str | None = None, prop: str | None = None
) -> Finding:
    return Finding(Severity.WARNING, code, message, type_name, prop, (query,), span)


def _unused_parameters(query: ast.Query, context: Context) -> Iterator[Finding]:
    for param in query.params:
        if param.name not in context.used_params:
            yield _warning("L202", f"{query.name}: parameter ${param.name} is not used", query.name, param.span)


def _unused_variables(name: str, read: ast.Read) -> Iterator[Finding]:
    """Variables that a traversal introduces and nothing else mentions: `$_` says the same."""
    mentions: Counter[str] = Counter()
    for node in walk(read):
        match node:
            case ast.Var():
                mentions[node.name] += 1
            case ast.Access() | ast.Pattern():
                mentions[node.var] += 1
            case ast.Traversal():
                mentions.update(v for v in (node.edge_var, node.path_var) if v is not None)
    for node in walk(read):
        if not isinstance(node, ast.Traversal):
            continue
        for var in (node.left.name, node.edge_var, node.right.name, node.path_var):
            if var is not None and var != ast.ANONYMOUS and mentions[var] == 1:
                hint = "" if var in (node.edge_var, node.path_var) else "; $_ says that it does not matter"
                yield _warning("L203", f"{name}: ${var} is used nowhere else{hint}", name, node.span)


def _products(query: ast.Query, block: ir.Block) -> Iterator[Finding]:
    """Groups of variables that nothing connects, in this block and in those below it."""
    groups = _components(block)
    if len(groups) > 1:
        shown = " and ".join("{" + ", ".join(_shown(name) for name in sorted(group)) + "}" for group in groups)
        message = f"{query.name}: nothing connects {shown}, so every combination is a row"
        yield _warning("L204", message, query.name, query.span)
    for inner in (*block.optionals, *block.negations):
        yield from _products(query, inner)


def _shown(name: str) -> str:
    return "$_" if "#" in name else f"${name}"


def _components(block: ir.Block) -> list[set[str]]:
    """The groups of variables that are connected by traversals, comparisons or optional blocks."""
    groups: list[set[str]] = [{node.name} for node in block.nodes]
    if block.outer:
        groups.append(set(block.outer))
    links: list[set[str]] = [{expand.left, expand.right} for expand in block.expands]
    owners = {e.edge_var.name: e.left for e in block.expands if e.edge_var} | {
        e.path_var: e.left for e in block.expands if e.path_var
    }
    for condition in block.filters:
        links.append({owners.get(name, name) for name in _variables(condition)})
    for optional in block.optionals:
        links.append({owners.get(name, name) for name in optional.outer} | {n.name for n in optional.nodes})
    for link in links:
        touched = [group for group in groups if group & link]
        if touched:
            groups = [group for group in groups if not group & link]
            groups.append(set().union(*touched))
    return groups


def _variables(node: object) -> Iterator[str]:
    """The variables that an IR expression mentions."""
    for part in walk(node):
        match part:
            case ir.Prop() | ir.Ident() | ir.TypeOf() | ir.PathValue() | ir.VarIsNull():
                yield part.var
            case ir.SameEntity():
                yield part.left
                yield part.right


def _arbitrary_limit(query: ast.Query, read: ast.Read, checked: ir.Read) -> Iterator[Finding]:
    one_row = checked.grouped and all(isinstance(c.expr, ir.Aggregate) for c in checked.columns)
    if read.limit is not None and not read.order and not one_row:
        message = f"{query.name}: 'limit' without 'order' keeps arbitrary rows"
        yield _warning("L205", message, query.name, read.limit.span)


def _blocks(block: ir.Block) -> Iterator[ir.Block]:
    yield block
    for inner in (*block.optionals, *block.negations):
        yield from _blocks(inner)


def _unreachable_hops(query: ast.Query, match: ir.Block) -> Iterator[Finding]:
    for block in _blocks(match):
        for expand in block.expands:
            if expand.hops is not None and not _can_walk(expand.steps, expand.hops.min):
                edges = " | ".join(sorted({step.edge for step in expand.steps}))
                message = f"{query.name}: no walk along {edges} has {expand.hops.min} hops"
                yield _warning("L207", message, query.name, query.span)


def _can_walk(steps: Iterable[ir.Step], hops: int) -> bool:
    """Whether the types allow a walk of this many steps. A cycle of types allows any number."""
    pairs = {(step.left_type, step.right_type) for step in steps}
    reached = {left for left, _ in pairs}
    for _ in range(min(hops, len(pairs) + 1)):
        reached = {right for left, right in pairs if left in reached}
        if not reached:
            return False
    return True


def _required_optionals(query: ast.Query, match: ir.Block) -> Iterator[Finding]:
    """Optional variables that a required clause of the same block cannot do without."""
    for block in _blocks(match):
        required = {name for expand in block.expands for name in (expand.left, expand.right)}
        for condition in block.filters:
            match condition:
                case ir.VarIsNull(negated=True):
                    required.add(condition.var)
                case ir.Compare() | ir.InList() | ir.SameEntity() | ir.TextMatch():
                    if not any(isinstance(n, ir.Apply) and n.function is ir.Function.COALESCE for n in walk(condition)):
                        required.update(_variables(condition))
        for optional in block.optionals:
            bound = {node.name for node in optional.nodes}
            bound |= {e.edge_var.name for e in optional.expands if e.edge_var}
            for name in sorted(bound & required):
                message = f"{query.name}: {_shown(name)} is required later, so its 'optional' block keeps no more rows"
                yield _warning("L208", message, query.name, query.span)


def _written_defaults(query: ast.Query, write: ir.Write, context: Context) -> Iterator[Finding]:
    for statement in write.statements:
        if not isinstance(statement, ir.InsertNode | ir.InsertEdge):
            continue
        catalog = context.catalog
        owner = (catalog.nodes if isinstance(statement, ir.InsertNode) else catalog.edges)[statement.type_name]
        for assign in statement.assigns:
            prop = owner.properties[assign.property]
            if prop.default is not None and default_value(prop) == assign.value:
                message = f"{query.name}: {owner.name}.{prop.name} is set to its default"
                yield _warning("L209", message, query.name, query.span, owner.name, prop.name)
