"""Writes inferred types as a schema and a mapping, with the reasons as comments."""

from __future__ import annotations

import json
import re

from omnigraph.amounts import counted
from omnigraph.inference.draft import Draft, EdgeDraft, End, NodeDraft, PropertyDraft
from omnigraph.inference.table_profile import TableProfile
from omnigraph.lang.types import Scalar
from omnigraph.write.input.named_columns import Dialect

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*(?<! )")
_WORDS = ("true", "false", "null")


def schema_text(draft: Draft) -> str:
    """The schema, in the schema language."""
    blocks = [_node(node) for node in draft.nodes] + [_edge(edge) for edge in draft.edges]
    return "\n\n".join(blocks) + "\n"


def _node(node: NodeDraft) -> str:
    lines = [f"// {_comment(reason)}" for reason in (_origin(node.table, node.derived), *node.reasons)]
    lines.append(f"node {node.name} {{")
    for prop in node.properties:
        single = node.key == (prop.name,)
        lines.append(_declared(prop, " @key" if single else ""))
    if len(node.key) > 1:
        lines.append(f"    @key({', '.join(node.key)})")
    return "\n".join([*lines, "}"])


def _edge(edge: EdgeDraft) -> str:
    lines = [f"// {_comment(reason)}" for reason in (_origin(edge.table, False), *edge.reasons)]
    members = [_declared(prop) for prop in edge.properties] + ["    @key(src, dst)"] * edge.unique
    head = f"edge {edge.name}: {edge.start.node.name} -> {edge.end.node.name}"
    return "\n".join([*lines, f"{head} {{", *members, "}"] if members else [*lines, head])


def _origin(table: TableProfile, derived: bool) -> str:
    return f"from {table.name}" + ("" if derived else f", {counted(table.rows, 'row', mark=',')}")


def _declared(prop: PropertyDraft, suffix: str = "") -> str:
    comment = f"  // {_comment(prop.reason)}" if prop.reason else ""
    return f"    {prop.name}: {prop.kind}{suffix}{comment}"


def _comment(text: str) -> str:
    return " ".join(text.split())


# The mapping


def mapping_text(draft: Draft) -> str:
    """The mapping, in YAML."""
    tables: dict[int, TableProfile] = {}
    for table in [*(node.table for node in draft.nodes), *(edge.table for edge in draft.edges)]:
        tables.setdefault(id(table), table)
    lines = ["sources:"]
    for table in tables.values():
        lines += ["", *_entry(draft, table)]
    return "\n".join(lines) + "\n"


def _entry(draft: Draft, table: TableProfile) -> list[str]:
    sources = [_scalar(source) for source in table.sources]
    listed = ", ".join(sources)
    lines = [f"  - source: {listed}" if len(sources) == 1 else f"  - source: [{listed}]"]
    if table.dialect is not None:
        members = [f"separator: {_quoted(table.dialect.separator or ',')}"]
        if set(table.dialect.nulls) != set(Dialect().nulls):
            members.append(f"null: [{', '.join(map(_quoted, table.nulls))}]")
        if not table.dialect.quote:
            members.append('quote: ""')
        if table.dialect.skip:
            members.append(f"skip: {table.dialect.skip}")
        if not table.dialect.header:
            members.append("header: false")
        lines.append(
            f"    csv: {{{', '.join(members)}}}" + (f"  # {_comment(table.why_header)}" * bool(table.why_header))
        )
        if table.dialect.columns is not None:
            lines[-1] = f"    csv:{f'  # {_comment(table.why_header)}' * bool(table.why_header)}"
            lines += [f"      {member}" for member in members]
            lines.append(f"      columns: [{', '.join(map(_quoted, table.dialect.columns))}]")
    rows = [_node_rows(node) for node in draft.nodes if node.table is table and not node.derived]
    for edge in draft.edges:
        if edge.table is not table:
            continue
        rows += [_derived_rows(end, table) for end in (edge.start, edge.end) if end.node.derived]
        rows.append(_edge_rows(edge))
    if len(rows) == 1 and not any(line.startswith("optional:") for line in rows[0]):
        return [*lines, *(f"    {line}" for line in rows[0])]
    lines.append("    rows:")
    for each in rows:
        lines.append(f"      - {each[0]}")
        lines += [f"        {line}" for line in each[1:]]
    return lines


def _node_rows(node: NodeDraft) -> list[str]:
    lines = [f"node: {node.name}"]
    if node.id_column is not None:
        lines.append(f"id: {_template(node.id_column)}")
    return [*lines, *_properties(node.properties), "others: ignore"]


def _derived_rows(end: End, table: TableProfile) -> list[str]:
    """The rows of nodes that are only mentioned by edges."""
    (column,) = end.columns
    lines = [f"node: {end.node.name}", f"id: {_template(column)}"]
    for prop in end.node.properties:
        lines += ["properties:", f"  {prop.name}: {_column(column)}"]
    if not table.column(column).complete():
        lines.append("optional: true")
    return [*lines, "others: ignore"]


def _edge_rows(edge: EdgeDraft) -> list[str]:
    lines = [f"edge: {edge.name}"]
    if edge.id_column is not None:
        lines.append(f"id: {_template(edge.id_column)}")
    lines += [f"from: {_end(edge.start)}", f"to: {_end(edge.end)}", *_properties(edge.properties)]
    if edge.optional:
        lines.append("optional: true")
    return [*lines, "others: ignore"]


def _end(end: End) -> str:
    if end.node.id_column is not None:
        return _template(end.columns[0])
    columns = dict(zip(end.node.key_columns, end.columns, strict=True))
    members = [
        (prop, columns[prop.column]) for name in end.node.key for prop in end.node.properties if prop.name == name
    ]
    if len(members) == 1 and members[0][0].kind.scalar is Scalar.STRING:
        return _column(members[0][1])
    return f"{{{', '.join(f'{prop.name}: {_source(prop, column)}' for prop, column in members)}}}"


def _properties(properties: list[PropertyDraft]) -> list[str]:
    if not properties:
        return []
    return ["properties:", *(f"  {prop.name}: {_source(prop, prop.column)}" for prop in properties)]


def _source(prop: PropertyDraft, column: str) -> str:
    if prop.format is None:
        return _column(column)
    return f"{{column: {_column(column)}, format: {_quoted(prop.format)}}}"


def _column(name: str) -> str:
    """The name of a column, where braces have a meaning."""
    return _scalar(name.replace("{", "{{").replace("}", "}}"))


def _template(column: str) -> str:
    """A text that consists of the value of a column. It makes an id from a number, too."""
    return _quoted(f"{{{column}}}")


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
