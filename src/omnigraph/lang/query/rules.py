"""Lint rules for single queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import NamedTuple

from omnigraph.errors import Span
from omnigraph.lang.diagnostics import Finding, Severity
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.scope import Context
from omnigraph.lang.query.check.walks import longest_walk
from omnigraph.lang.query.check.write import default_value
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema.catalog import Catalog


def query_findings(query: ast.Query, checked: ir.Query, context: Context) -> Iterator[Finding]:
    """The warnings of a query that has no errors."""
    yield from _unused_parameters(query, context)
    if isinstance(query.body, ast.Read) and isinstance(checked.body, ir.Read):
        yield from _unused_variables(query.name, query.body)
        yield from _unused_values(query, query.body)
        yield from _bound_again(query, query.body, checked.body)
        before: ir.Read | None = None
        lowered = [*(stage.read for stage in checked.body.stages), checked.body]
        for written, read in zip(_parts(query.body), lowered, strict=True):
            blocks = list(_blocks(written.match, read.match, written.match_span))
            yield from _products(query, blocks, context.catalog)
            message = _stage_product(before, read.match, context.catalog)
            if message is not None:
                yield _warning("L204", f"{query.name}: {message}", query.name, written.match_span)
            yield from _arbitrary_limit(query, written, read)
            yield from _ascending_ranks(query, written, read)
            yield from _unreachable_hops(query, blocks)
            yield from _required_optionals(query, blocks)
            before = read
    elif isinstance(query.body, ast.Write) and isinstance(checked.body, ir.Write):
        yield from _written_defaults(query, query.body, checked.body, context)


def _parts(read: ast.Read) -> tuple[ast.Read | ast.Stage, ...]:
    """The stages, and the read itself."""
    return (*read.stages, read)


def _warning(code: str, message: str, query: str, span: Span) -> Finding:
    return Finding(Severity.WARNING, code, message, None, None, (query,), span)


def _unused_parameters(query: ast.Query, context: Context) -> Iterator[Finding]:
    for param in query.params:
        if param.name not in context.used_params:
            yield _warning("L202", f"{query.name}: parameter ${param.name} is not used", query.name, param.span)


def _unused_variables(name: str, read: ast.Read) -> Iterator[Finding]:
    """L203: variables of a traversal that are not used elsewhere. `$_` can replace them."""
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
                hint = "" if var in (node.edge_var, node.path_var) else "; use $_ for a variable that is not needed"
                yield _warning("L203", f"{name}: ${var} is used nowhere else{hint}", name, node.span)


class _SourceBlock(NamedTuple):
    """A block of the IR with its source clauses, which have spans."""

    clauses: tuple[ast.Clause, ...]
    block: ir.Block
    span: Span


def _blocks(clauses: tuple[ast.Clause, ...], block: ir.Block, span: Span) -> Iterator[_SourceBlock]:
    """A block and all its nested blocks."""
    yield _SourceBlock(clauses, block, span)
    for kind, inner in ((ast.Optional, block.optionals), (ast.Negation, block.negations)):
        written = [clause for clause in clauses if isinstance(clause, kind)]
        for clause, lowered in zip(written, inner, strict=True):
            yield from _blocks(clause.clauses, lowered, clause.span)
    filters = tuple(clause for clause in clauses if isinstance(clause, ast.Filter))
    # The match of a query also has the blocks of its columns. They have no source here.
    for node, value in zip(_block_values(filters), block.values, strict=False):
        yield from _blocks(node.clauses, value.block, node.span)


def _block_values(node: object) -> Iterator[ast.BlockValue]:
    """The `exists` and `count` blocks in source order, without those inside other blocks."""
    if isinstance(node, ast.BlockValue):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _block_values(part)
    elif is_dataclass(node):
        for member in fields(node):
            yield from _block_values(getattr(node, member.name))


def _products(query: ast.Query, blocks: Iterable[_SourceBlock], catalog: Catalog) -> Iterator[Finding]:
    """L204: groups of variables that are not connected, so that the result is a cross product."""
    for _, block, span in blocks:
        message = _product(block, catalog)
        if message is not None:
            yield _warning("L204", f"{query.name}: {message}", query.name, span)


def products(read: ir.Read, catalog: Catalog) -> Iterator[str]:
    """Like `_products`, for a read without source clauses."""
    before: ir.Read | None = None
    for stage in (*(stage.read for stage in read.stages), read):
        found = [_product(part, catalog) for part in walk(stage.match) if isinstance(part, ir.Block)]
        yield from (message for message in (*found, _stage_product(before, stage.match, catalog)) if message)
        before = stage


def _stage_product(before: ir.Read | None, match: ir.Block, catalog: Catalog) -> str | None:
    """L204, for a match that is not connected with the rows of the stage before it."""
    if before is None or match.outer or not match.nodes or (before.grouped and not before.keys):
        return None
    if all(_is_fixed(node, match, catalog) for node in match.nodes):
        return None
    shown = ", ".join(_shown(node.name) for node in match.nodes)
    return f"{{{shown}}} and the rows of the stage before are not connected, so the result is a cross product"


def _unused_values(query: ast.Query, read: ast.Read) -> Iterator[Finding]:
    """L217: values of a stage that no later clause uses."""
    parts = _parts(read)
    for place, stage in enumerate(read.stages):
        following = parts[place + 1]
        own = replace(following, stages=()) if isinstance(following, ast.Read) else following
        later = (own, stage.projections, stage.having, stage.order)
        used = {node.name for node in walk(later) if isinstance(node, ast.Name)}
        for projection in stage.projections:
            name = projection.alias
            if name is not None and name not in used:
                message = f"{query.name}: the value {name} is used nowhere"
                yield _warning("L217", message, query.name, projection.span)


def _bound_again(query: ast.Query, body: ast.Read, read: ir.Read) -> Iterator[Finding]:
    """L218: variables that ended at a `with`, and whose name a later match binds again."""
    ended: set[str] = set()
    carried: set[str] = set()
    lowered = [*((stage.read, stage.carried) for stage in read.stages), (read, ())]
    for written, (part, going) in zip(_parts(body), lowered, strict=True):
        bound = {node.name for node in part.match.nodes if node.named}
        for name in sorted(bound & ended):
            message = f"{query.name}: ${name} ended at 'with', so this is another variable"
            yield _warning("L218", message, query.name, written.match_span)
        ended = (ended | bound | carried) - {*going}
        carried = {*going}


def _product(block: ir.Block, catalog: Catalog) -> str | None:
    groups = _components(block)
    single = {node.name for node in block.nodes if _is_fixed(node, block, catalog)}
    if sum(not (len(group) == 1 and group <= single) for group in groups) < 2:
        return None
    shown = " and ".join("{" + ", ".join(_shown(name) for name in sorted(group)) + "}" for group in groups)
    return f"{shown} are not connected, so the result is a cross product"


def _is_fixed(node: ir.NodeVar, block: ir.Block, catalog: Catalog) -> bool:
    """Whether filters compare the id or the complete key with constants. Then at most one node per type matches."""
    fixed: set[str] = set()
    for part in (part for condition in block.filters for part in _conjuncts(condition)):
        if not isinstance(part, ir.Compare) or part.op is not ir.CompareOp.EQ:
            continue
        for side, other in ((part.left, part.right), (part.right, part.left)):
            if not isinstance(other, ir.Const | ir.Param):
                continue
            if isinstance(side, ir.Ident) and side.var == node.name and side.role is ir.Role.ID:
                return True
            if isinstance(side, ir.Prop) and side.var == node.name:
                fixed.add(side.name)
    keys = [catalog.nodes[name].key for name in node.types]
    return all(key is not None and fixed.issuperset(key) for key in keys)


def _conjuncts(condition: ir.Expr) -> Iterator[ir.Expr]:
    if isinstance(condition, ir.And):
        for operand in condition.terms:
            yield from _conjuncts(operand)
    else:
        yield condition


def _shown(name: str) -> str:
    return "$_" if "#" in name else f"${name}"


def _components(block: ir.Block) -> list[set[str]]:
    """The groups of connected variables. Traversals, filters and optional blocks connect variables."""
    optionals = [part for inner in block.optionals for part in walk(inner) if isinstance(part, ir.Block)]
    groups: list[set[str]] = [{node.name} for part in (block, *optionals) for node in part.nodes]
    if block.outer:
        groups.append(set(block.outer))
    owners: dict[str, str] = {}
    links: list[set[str]] = []
    for part in (block, *optionals):
        for expand in part.expands:
            links.append({expand.left, expand.right})
            if expand.edge_var is not None:
                owners[expand.edge_var.name] = expand.left
            if expand.path_var is not None:
                owners[expand.path_var] = expand.left
    blocks = {value.name: value.block.outer for value in block.values}
    for condition in block.filters:
        values = (part.name for part in walk(condition) if isinstance(part, ir.Value))
        names = {*_variables(condition), *(name for value in values for name in blocks.get(value, (value,)))}
        links.append({owners.get(name, name) for name in names})
    for part in optionals:
        # An optional block connects its variables with the outer ones. Cross products inside it are found separately.
        links.append({owners.get(name, name) for name in part.outer} | {node.name for node in part.nodes})
    return _joined(groups, links)


def _joined(groups: list[set[str]], links: list[set[str]]) -> list[set[str]]:
    """Merge the groups that a link connects (union-find), in the order of first use."""
    number = {name: i for i, group in enumerate(groups) for name in group}
    members = dict(enumerate(map(set, groups)))
    for link in links:
        touched = {number[name] for name in link if name in number}
        if len(touched) < 2:
            continue
        first, *others = sorted(touched, key=lambda i: len(members[i]), reverse=True)
        for other in others:  # merge smaller groups into the largest one, so that each name moves rarely
            members[first] |= members[other]
            number |= dict.fromkeys(members.pop(other), first)
    return [members[i] for i in dict.fromkeys(number[name] for group in groups for name in group)]


def _variables(node: object) -> Iterator[str]:
    """The variables of an IR expression."""
    for part in walk(node):
        match part:
            case ir.Prop() | ir.Ident() | ir.Entity() | ir.TypeOf() | ir.PathValue() | ir.VarIsNull():
                yield part.var
            case ir.SameEntity():
                yield part.left
                yield part.right


def _arbitrary_limit(query: ast.Query, read: ast.Read | ast.Stage, checked: ir.Read) -> Iterator[Finding]:
    one_row = checked.grouped and not checked.keys
    if read.limit is not None and not read.order and not one_row:
        message = f"{query.name}: 'limit' without 'order' keeps arbitrary rows"
        yield _warning("L205", message, query.name, read.limit.span)


def _ascending_ranks(query: ast.Query, read: ast.Read | ast.Stage, checked: ir.Read) -> Iterator[Finding]:
    """L216: rank columns in ascending order, where larger is better."""
    columns = {column.name: column.expr for column in checked.columns}
    for written, key in zip(read.order, checked.order, strict=True):
        expr = key.expr
        while isinstance(expr, ir.Column):
            expr = columns[expr.name]
        if written.descending is None and isinstance(key.expr, ir.Column) and isinstance(expr, ir.Bm25 | ir.Fusion):
            name = key.expr.name
            message = f"{query.name}: the best results by {name} come last; write {name} desc"
            yield _warning("L216", message, query.name, written.span)


def _unreachable_hops(query: ast.Query, blocks: Iterable[_SourceBlock]) -> Iterator[Finding]:
    """L207, L215: hop ranges whose minimum or maximum exceeds the number of hops that the types allow."""
    for clauses, block, _ in blocks:
        written = [clause for clause in clauses if isinstance(clause, ast.Traversal)]
        for clause, expand in zip(written, block.expands, strict=True):
            asked = clause.hops
            if asked is None or expand.hops is None:
                continue
            # The checker limits the hops of a walk that could otherwise turn around.
            is_limited = (asked.min, asked.max) != (expand.hops.min, expand.hops.max)
            longest = expand.hops.max if is_limited else longest_walk(expand.steps)
            if longest is None:
                continue
            edges = " | ".join(sorted({step.edge for step in expand.steps}))
            if asked.min > longest:
                message = f"{query.name}: no traversal of {edges} has {asked.min} hops"
                yield _warning("L207", message, query.name, clause.span)
            elif asked.max is None or asked.max > longest:
                hops = "one hop" if longest == 1 else f"{longest} hops"
                ends = {(step.left_type, step.right_type) for step in expand.steps}
                led = ": it leads from {} to {}".format(*ends.pop()) if len(ends) == 1 else ""
                message = f"{query.name}: a traversal of {edges} ends after {hops}{led}"
                yield _warning("L215", message, query.name, clause.span)


def _required_optionals(query: ast.Query, blocks: Iterable[_SourceBlock]) -> Iterator[Finding]:
    """L208: optional variables that a required clause of the same block needs."""
    for clauses, block, _ in blocks:
        required = {name for expand in block.expands for name in (expand.left, expand.right)}
        for condition in block.filters:
            required.update(_cannot_be_null(condition))
        written = [clause for clause in clauses if isinstance(clause, ast.Optional)]
        for clause, optional in zip(written, block.optionals, strict=True):
            bound = {node.name for node in optional.nodes}
            bound |= {e.edge_var.name for e in optional.expands if e.edge_var}
            for name in sorted(bound & required):
                message = f"{query.name}: {_shown(name)} is required elsewhere, so rows without it are dropped"
                yield _warning("L208", message, query.name, clause.span)


def _cannot_be_null(condition: ir.Expr) -> Iterator[str]:
    """The variables that must be bound for a filter to be true."""
    if isinstance(condition, ir.VarIsNull) and condition.negated:
        yield condition.var
    elif isinstance(condition, ir.Compare | ir.InList | ir.SameEntity | ir.TextMatch) and not any(
        isinstance(part, ir.IsNull | ir.VarIsNull)
        or (isinstance(part, ir.Apply) and part.function is ir.Function.COALESCE)
        for part in walk(condition)
    ):
        yield from _variables(condition)


def _written_defaults(query: ast.Query, body: ast.Write, write: ir.Write, context: Context) -> Iterator[Finding]:
    catalog = context.catalog
    for written, statement in zip(body.statements, write.statements, strict=True):
        if not isinstance(written, ast.Insert) or not isinstance(statement, ir.InsertNode | ir.InsertEdge):
            continue
        owner = (catalog.nodes if isinstance(statement, ir.InsertNode) else catalog.edges)[statement.type_name]
        spans = {assign.name: assign.span for assign in written.assigns}
        for assign in statement.assigns:
            prop = owner.properties[assign.property]
            if prop.default is not None and default_value(prop) == assign.value:
                message = f"{query.name}: {owner.name}.{prop.name} is set to its default"
                is_edge = isinstance(statement, ir.InsertEdge)
                found = _warning("L209", message, query.name, spans[prop.name])
                yield replace(found, type_name=owner.name, property=prop.name, edge=is_edge)
