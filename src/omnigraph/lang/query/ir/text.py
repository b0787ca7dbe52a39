"""Text form of the IR for `explain`: one line per clause, in the order of evaluation."""

from __future__ import annotations

from dataclasses import fields

from omnigraph.lang.query.ir import expr as e
from omnigraph.lang.query.ir import query as q
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.tokens import quote
from omnigraph.lang.types import Scalar


def render(ir: q.Query) -> str:
    """The IR of a query as indented text."""
    params = ", ".join(f"${p.name}: {p.type}{_default(p)}" for p in ir.params)
    lines = [f"{'read' if ir.is_read else 'write'} {ir.name}({params})"]
    lines += _read(ir.body) if isinstance(ir.body, q.Read) else _write(ir.body)
    return "\n".join(lines) + "\n"


def _default(param: q.Parameter) -> str:
    return f" = {expression(e.Const(param.default, param.type))}" if param.has_default else ""


def _read(read: q.Read, carried: tuple[str, ...] | None = None) -> list[str]:
    """The lines of a read. For a stage, `carried` are the variables that go on."""
    lines = [line for stage in read.stages for line in _read(stage.read, stage.carried)]
    lines += ["  match", *_block(read.match, 2)]
    how = (" distinct" if read.distinct else "") + ("" if carried is None else " and go on")
    lines.append(f"  {'group' if read.grouped else 'return' if carried is None else 'rows'}{how}")
    for column in read.columns:
        goes_on = carried is not None and column.name in carried
        lines.append(f"    ${column.name}" if goes_on else f"    {_column(column)}")
    lines += [f"  having {expression(h)}" for h in read.having]
    for key in read.order:
        nulls = "first" if key.nulls_first else "last"
        lines.append(f"  order {expression(key.expr)} {'desc' if key.descending else 'asc'} nulls {nulls}")
    if read.ties:
        lines.append(f"  ties {', '.join(map(expression, read.ties))}")
    for word, count in (("limit", read.limit), ("offset", read.offset)):
        if count is not None:
            lines.append(f"  {word} {expression(count)}")
    return lines


def _column(column: q.OutColumn) -> str:
    return f"{column.name}: {column.expr.type} = {expression(column.expr)}"


def _block(block: q.Block, level: int) -> list[str]:
    pad = "  " * level
    lines = []
    if block.outer:
        lines.append(f"{pad}outer {', '.join(f'${name}' for name in block.outer)}")
    lines += [f"{pad}node ${n.name}: {' | '.join(n.types) or 'nothing'}" for n in block.nodes]
    lines += [pad + expansion(expand) for expand in block.expands]
    lines += [f"{pad}filter {expression(f)}" for f in block.filters]
    for word, blocks in (("optional", block.optionals), ("not", block.negations)):
        for inner in blocks:
            lines += [f"{pad}{word}", *_block(inner, level + 1)]
    for value in block.values:
        lines += [f"{pad}value {value.name} {value.function.value}", *_block(value.block, level + 1)]
    return lines


def expansion(expand: q.Expand) -> str:
    """An expand on one line."""
    arrows = {q.Direction.OUT: "-{}->", q.Direction.IN: "<-{}-", q.Direction.BOTH: "<-{}->"}
    steps = " | ".join(f"{s.left_type} {arrows[s.direction].format(s.edge)} {s.right_type}" for s in expand.steps)
    text = f"expand ${expand.left} to ${expand.right} by {steps}"
    if expand.hops is not None:
        most = "" if expand.hops.max is None else expand.hops.max
        text += f" hops {expand.hops.min}..{most}"
    if expand.edge_var is not None:
        text += f" as edge ${expand.edge_var.name}"
    if expand.path_var is not None:
        text += f" as shortest path ${expand.path_var}"
    return text


def _write(write: q.Write) -> list[str]:
    lines: list[str] = []
    for statement in write.statements:
        match statement:
            case q.InsertNode():
                lines.append(f"  {statement.mode.value} node {statement.type_name}")
            case q.InsertEdge():
                ends = f"from {expression(statement.source)} to {expression(statement.target)}"
                lines.append(f"  {statement.mode.value} edge {statement.type_name} {ends}")
            case q.Update() | q.Delete():
                word = "update" if isinstance(statement, q.Update) else "delete"
                where = expression(statement.where)
                lines.append(f"  {word} {statement.entity.value} {statement.type_name} where {where}")
        if isinstance(statement, q.Delete):
            lines += [f"    cascade {edge}" for edge in statement.cascades]
            continue
        lines += [f"    set {a.property} = {expression(a.value)}" for a in statement.assigns]
        if isinstance(statement, q.InsertNode | q.InsertEdge):
            lines += [f"    default {a.property} = {expression(a.value)}" for a in statement.defaults]
        if isinstance(statement, q.InsertNode | q.Update):
            lines += [f"    embed {m.target} from {m.source}" for m in statement.embeds]
    return lines


def expression(node: e.Expr) -> str:
    """An expression, fully parenthesised."""
    match node:
        case e.Const():
            return _const(node.value, node.type.scalar)
        case e.Param():
            return f"${node.name}"
        case e.Now():
            return "now()"
        case e.Prop():
            return f"${node.var}.{node.name}"
        case e.Ident():
            return f"${node.var}.{node.role.value}"
        case e.Entity():
            return f"entity(${node.var})"
        case e.TypeOf():
            return f"type(${node.var})"
        case e.PathValue():
            return f"{node.part.value}(${node.var})"
        case e.Column():
            return f"column({node.name})"
        case e.Value():
            return f"value({node.name})"
        case e.VarIsNull():
            return f"(${node.var} is {'not ' if node.negated else ''}null)"
        case e.SameEntity():
            return f"(${node.left} {'!=' if node.negated else '='} ${node.right})"
        case e.TextMatch():
            edits = "" if node.edits is None else f", edits={expression(node.edits)}"
            arguments = f"{expression(node.field)}, {expression(node.query)}{edits}{_analyzer(node.analyzer)}"
            return f"text_{node.mode.value}({arguments})"
        case e.Nearest():
            return f"nearest({expression(node.field)}, {expression(node.query)}, {node.metric.value})"
        case e.Bm25():
            return f"bm25({expression(node.field)}, {expression(node.query)}{_analyzer(node.analyzer)})"
        case e.Fusion():
            arms = ", ".join(f"{expression(a.rank)} * {a.weight!r}" for a in node.arms)
            return f"rrf({arms}, k={expression(node.k)})"
        case e.Aggregate():
            arg = "*" if node.arg is None else expression(node.arg)
            return f"{node.function.value}({'distinct ' if node.distinct else ''}{arg})"
    return _operator(node)


def _analyzer(analyzer: e.Analyzer) -> str:
    """The analyzer options that differ from the defaults."""
    usual = e.Analyzer()
    members = ((field.name, getattr(analyzer, field.name)) for field in fields(analyzer))
    return "".join(f", {name}={value}".lower() for name, value in members if value != getattr(usual, name))


def _operator(node: e.Expr) -> str:
    match node:
        case e.Compare() | e.Arith():
            return f"({expression(node.left)} {node.op.value} {expression(node.right)})"
        case e.InList():
            return f"({expression(node.value)} {'not in' if node.negated else 'in'} {expression(node.items)})"
        case e.IsNull():
            return f"({expression(node.value)} is {'not ' if node.negated else ''}null)"
        case e.And() | e.Or():
            word = " and " if isinstance(node, e.And) else " or "
            return f"({word.join(map(expression, node.terms))})"
        case e.Not():
            return f"(not {expression(node.term)})"
        case e.Negate():
            return f"(-{expression(node.value)})"
        case e.Apply():
            return f"{node.function.value}({', '.join(map(expression, node.args))})"
        case e.DateDiff():
            return f"date_diff({node.unit.value}, {expression(node.start)}, {expression(node.end)})"
        case e.DateAdd():
            return f"date_add({node.unit.value}, {expression(node.amount)}, {expression(node.date)})"
    raise AssertionError(f"not an expression of the IR: {node!r}")


def _const(value: e.ConstValue, scalar: Scalar) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_const(item, scalar) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if scalar is Scalar.DATE:
        return f'date("{format_date(int(value))}")'
    if scalar is Scalar.DATETIME:
        return f'datetime("{format_datetime(int(value))}")'
    return repr(value)
