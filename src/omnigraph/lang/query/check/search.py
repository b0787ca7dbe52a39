"""Type rules of search and rank functions: `search`, `match_text`, `fuzzy`, `bm25`, `nearest`, `rrf`."""

from __future__ import annotations

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.compare import is_text
from omnigraph.lang.query.check.expression_checker import ExpressionChecker
from omnigraph.lang.query.check.scope import Scope, Variable, VarKind, fail
from omnigraph.lang.query.check.values import fit
from omnigraph.lang.schema.catalog import Catalog, Index, IndexKind, NodeType
from omnigraph.lang.schema.indexes import built_kind
from omnigraph.lang.types import Scalar, ValueType

TEXT_FILTERS = frozenset({"search", "match_text", "fuzzy"})
RANKS = frozenset({"nearest", "bm25", "rrf"})

_MAX_EDITS = 2
_NUMBERS = (ast.LiteralKind.INT, ast.LiteralKind.FLOAT)


def text_filter(node: ast.Call, expressions: ExpressionChecker) -> ir.TextMatch:
    """Check `search`, `match_text` or `fuzzy`."""
    name = node.function
    code = "T20" if name == "match_text" else "T19"
    allowed = 3 if name == "fuzzy" else 2
    if not 2 <= len(node.args) <= allowed:
        wanted = "a text property, a text and an optional number of edits" if allowed == 3 else _TWO
        raise fail(code, f"{name} takes {wanted}", node.span)
    field, analyzer = _text_field(node, expressions, code)
    query = _text_query(node, expressions, code)
    mode = {"search": ir.TextMode.ANY, "match_text": ir.TextMode.PHRASE, "fuzzy": ir.TextMode.FUZZY}[name]
    if name == "search" and _all_tokens(node):
        mode = ir.TextMode.ALL
    elif name != "search" and node.options:
        raise fail(code, f"{name} takes no named arguments", node.span)
    edits = _edits(node, expressions) if name == "fuzzy" else None
    return ir.TextMatch(mode, field, query, edits, analyzer)


_TWO = "a text property and a text"


def _all_tokens(node: ast.Call) -> bool:
    for option, value in node.options:
        if option != "all" or not isinstance(value, ast.Literal) or not isinstance(value.value, bool):
            raise fail("T19", "the only option of search is all=true or all=false", node.span)
    return any(isinstance(v, ast.Literal) and v.value is True for _, v in node.options)


def _edits(node: ast.Call, expressions: ExpressionChecker) -> ir.Const | ir.Param:
    if len(node.args) < 3:
        return ir.Const(_MAX_EDITS, ir.I64)
    edits = _whole_number(node.args[2], expressions)
    if edits is None or (isinstance(edits, ir.Const) and edits.value not in range(_MAX_EDITS + 1)):
        raise fail("T19", f"fuzzy allows 0 to {_MAX_EDITS} edits, as a number or a parameter", node.args[2].span)
    return edits


def _whole_number(node: ast.Expr, expressions: ExpressionChecker) -> ir.Const | ir.Param | None:
    """An integer literal or parameter; None for other expressions."""
    if isinstance(node, ast.Literal | ast.Var):
        value = expressions.check(node)
        if isinstance(value, ir.Const | ir.Param) and value.type.scalar.is_integer and not value.type.list:
            return value
    return None


def rank(node: ast.Call, expressions: ExpressionChecker) -> ir.Rank:
    """Check `nearest`, `bm25` or `rrf`."""
    if node.function == "rrf":
        return _fusion(node, expressions)
    return _single_rank(node, expressions)


def _single_rank(node: ast.Call, expressions: ExpressionChecker) -> ir.Nearest | ir.Bm25:
    if node.function == "bm25":
        if len(node.args) != 2 or node.options:
            raise fail("T20", f"bm25 takes {_TWO}", node.span)
        text, analyzer = _text_field(node, expressions, "T20")
        return ir.Bm25(text, _text_query(node, expressions, "T20"), analyzer)
    if len(node.args) != 2 or node.options:
        raise fail("T15", "nearest takes a vector property and a vector or a text", node.span)
    field, variable = _target(node, expressions, "T15")
    if not field.type.is_vector:
        raise fail("T15", f"nearest takes a Vector property, but this is {field.type}", node.args[0].span)
    query = _vector_query(node.args[1], field, expressions)
    prop = _declared(expressions.scope, variable, field.name)
    return ir.Nearest(field, query, prop[0], prop[1])


def _fusion(node: ast.Call, expressions: ExpressionChecker) -> ir.Fusion:
    written = list(node.args)
    k: ir.Const | ir.Param = ir.Const(60, ir.I64)
    for option, value in node.options:
        if option != "k":
            raise fail("T21", f"rrf takes no argument '{option}'", value.span, hint="its only named argument is k")
        k = _fusion_constant(value, expressions)
    if written and not _is_arm(written[-1]):
        if node.options:
            raise fail("T21", "rrf takes k once", written[-1].span)
        k = _fusion_constant(written.pop(), expressions)
    if len(written) < 2:
        raise fail("T21", "rrf takes two or more of nearest(…) and bm25(…)", node.span)
    arms = tuple(_arm(arm, expressions) for arm in written)
    variables = {arm.rank.field.var for arm in arms}
    if len(variables) > 1:
        names = ", ".join(f"${name}" for name in sorted(variables))
        raise fail("T21", f"all arguments of rrf must rank the same variable, but these rank {names}", node.span)
    return ir.Fusion(arms, k)


def _is_arm(node: ast.Expr) -> bool:
    if isinstance(node, ast.Arithmetic) and node.op == "*":
        return _is_arm(node.left) or _is_arm(node.right)
    return isinstance(node, ast.Call)


def _arm(node: ast.Expr, expressions: ExpressionChecker) -> ir.Arm:
    weight = 1.0
    if isinstance(node, ast.Arithmetic) and node.op == "*":
        factor, ranked = (node.right, node.left) if isinstance(node.left, ast.Call) else (node.left, node.right)
        if not isinstance(factor, ast.Literal) or factor.kind not in _NUMBERS:
            raise fail("T21", "a weight in rrf must be a number", factor.span)
        weight = float(factor.value)  # type: ignore[arg-type]
        if weight <= 0:
            raise fail("T21", "a weight in rrf must be above zero", factor.span)
        node = ranked
    if not isinstance(node, ast.Call) or node.function not in ("nearest", "bm25"):
        raise fail("T21", "an argument of rrf must be nearest(…) or bm25(…), with an optional weight", node.span)
    return ir.Arm(_single_rank(node, expressions), weight)


def _fusion_constant(node: ast.Expr, expressions: ExpressionChecker) -> ir.Const | ir.Param:
    value = _whole_number(node, expressions)
    if value is None or (isinstance(value, ir.Const) and not (isinstance(value.value, int) and value.value > 0)):
        raise fail("T21", "k of rrf must be an integer above zero, or a parameter", node.span)
    return value


def _target(node: ast.Call, expressions: ExpressionChecker, code: str) -> tuple[ir.Prop, Variable]:
    """The searched property. It must belong to a node."""
    target = node.args[0]
    if not isinstance(target, ast.Access):
        raise fail(code, f"{node.function} searches a property: $variable.property", target.span)
    variable = expressions.scope.find(target.var)
    if variable is not None and variable.kind is VarKind.EDGE:
        raise fail("T23", f"{node.function} searches nodes, and ${target.var} is an edge", target.span)
    field = expressions.access(target, allow_blob=False)
    if not isinstance(field, ir.Prop) or variable is None:
        raise fail(
            code, f"{node.function} searches a property that the schema declares, not {target.property}", target.span
        )
    return field, variable


def _text_field(node: ast.Call, expressions: ExpressionChecker, code: str) -> tuple[ir.Prop, ir.Analyzer]:
    field, variable = _target(node, expressions, code)
    if not is_text(field.type):
        raise fail(code, f"{node.function} searches a String property, but this is {field.type}", node.args[0].span)
    nodes = expressions.scope.context.catalog.nodes
    found = {_analyzer(nodes[name], field.name) for name in variable.types}
    if len(found) > 1:
        raise fail(
            code,
            f"the types of ${variable.name} have different analyzers for {field.name}",
            node.args[0].span,
            hint="search one node type at a time",
        )
    return field, found.pop() if found else ir.Analyzer()


def _analyzer(node: NodeType, name: str) -> ir.Analyzer:
    """The analyzer of a text property, from its full-text index in the schema."""
    type_ = node.properties[name].type
    for index in node.constraints:
        match index:
            case Index((field,), kind, options) if (
                field == name and options and built_kind(kind, type_) is IndexKind.FTS
            ):
                return ir.Analyzer.with_options(dict(options))
    return ir.Analyzer()


def _text_query(node: ast.Call, expressions: ExpressionChecker, code: str) -> ir.Expr:
    query = node.args[1]
    if isinstance(query, ast.Literal | ast.Var):
        value = expressions.check(query)
        if is_text(value.type):
            return value
        raise fail(code, f"{node.function} takes a text to look for, but this is {value.type}", query.span)
    raise fail(code, f"{node.function} takes the text to look for as a literal or a parameter", query.span)


def _vector_query(node: ast.Expr, field: ir.Prop, expressions: ExpressionChecker) -> ir.Expr:
    if isinstance(node, ast.ListLiteral):
        if len(node.items) != field.type.dim:
            message = f"{field.name} has {field.type.dim} dimensions, this vector has {len(node.items)}"
            raise fail("T15", message, node.span)
        if any(not isinstance(i, ast.Literal) or i.kind not in _NUMBERS for i in node.items):
            raise fail("T15", "a vector is a list of numbers", node.span)
        return fit(node, ValueType(Scalar.VECTOR, dim=field.type.dim), field.name)
    if isinstance(node, ast.Literal | ast.Var):
        value = expressions.check(node)
        if is_text(value.type):
            return value
        if value.type.is_vector:
            if value.type.dim != field.type.dim:
                message = f"{field.name} has {field.type.dim} dimensions, this parameter has {value.type.dim}"
                raise fail("T15", message, node.span)
            return value
    raise fail("T15", "nearest takes a vector or a text, as a literal or a parameter", node.span)


def _declared(scope: Scope, variable: Variable, name: str) -> tuple[ir.Metric, str | None]:
    """Metric and model of a vector property. They must be the same for all types of the variable."""
    catalog = scope.context.catalog
    found = {(_metric(catalog, t, name), _model(catalog, t, name)) for t in variable.types}
    if not found:
        return ir.Metric.L2, None  # no type implements the interface, so there is nothing to rank
    if len(found) > 1:
        raise fail(
            "T15",
            f"the types of ${variable.name} have different metrics or models for {name}",
            variable.span,
            hint="rank one node type at a time",
        )
    return found.pop()


def _metric(catalog: Catalog, type_name: str, name: str) -> ir.Metric:
    for constraint in catalog.nodes[type_name].constraints:
        if isinstance(constraint, Index) and constraint.fields == (name,):
            metric = dict(constraint.options).get("metric")
            if metric is not None:
                return ir.Metric(metric)
    return ir.Metric.L2


def _model(catalog: Catalog, type_name: str, name: str) -> str | None:
    embed = catalog.nodes[type_name].properties[name].embed
    return embed.model if embed else None
