"""Pygments lexers of schemas (`pg`) and queries (`gq`), for the documentation."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

__all__ = ["QueryLexer", "SchemaLexer"]  # Pygments looks for lexers here

_COMMON = [
    (r"\s+", Whitespace),
    (r"//.*?$", Comment.Single),
    (r"/\*(?:.|\n)*?\*/", Comment.Multiline),
    (r'"(?:[^"\\]|\\.)*"', String.Double),
    (r"@\w+", Name.Decorator),
    (r"-?\d+\.\d+(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+", Number.Float),
    (r"\d+", Number.Integer),
    (words(("true", "false", "null"), suffix=r"\b"), Keyword.Constant),
]
_TYPES = (
    words(
        ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "DateTime", "Date", "Vector", "Blob"), suffix=r"\b"
    ),
    Keyword.Type,
)
_REST = [
    (r"[A-Z]\w*", Name.Class),
    (r"->|\.\.|[<>!]=|[=<>|?*+%/-]", Operator),
    (r"[{}()\[\],.:]", Punctuation),
    (r"\w+", Name),
    (r".", Text),
]


class SchemaLexer(RegexLexer):  # type: ignore[misc]
    """The schema language."""

    name = "OmniGraph schema"
    aliases: ClassVar = ["pg"]
    filenames: ClassVar = ["*.pg"]
    tokens: ClassVar = {
        "root": [
            *_COMMON,
            (r"(node|edge|interface)(\s+)([A-Z]\w*)", bygroups(Keyword.Declaration, Whitespace, Name.Class)),
            (r"\b(implements|enum)\b(?=\s*[A-Z(])", Keyword),
            _TYPES,
            (r"([a-z_]\w*)(\s*)(:)", bygroups(Name.Attribute, Whitespace, Punctuation)),
            *_REST,
        ]
    }


class QueryLexer(RegexLexer):  # type: ignore[misc]
    """The query language."""

    name = "OmniGraph queries"
    aliases: ClassVar = ["gq"]
    filenames: ClassVar = ["*.gq"]
    tokens: ClassVar = {
        "root": [
            *_COMMON,
            (r"(query)(\s+)(\w+)(?=\s*\()", bygroups(Keyword.Declaration, Whitespace, Name.Function)),
            (r"\$\w+", Name.Variable),
            (r"(\.)([a-z_]\w*)", bygroups(Punctuation, Name.Attribute)),
            _TYPES,
            (words(("match", "optional", "exists", "with", "having", "order"), suffix=r"(?=\s*\{)"), Keyword),
            (r"\b(?:return|distinct|not|count)\b(?=\s+(?:distinct|exists|in)\b|\s*[({])", Keyword),
            (
                words(("insert", "create", "merge", "update", "delete"), suffix=r"(?=\s+(?:node\s|edge\s|[A-Z]))"),
                Keyword,
            ),
            (words(("limit", "offset"), suffix=r"(?=\s+[\d$])"), Keyword),
            (r"\b(?:set|where|shortest|as|asc|desc|nulls|first|last)\b(?!\s*[:)}])", Keyword),
            (
                words(
                    ("and", "or", "not", "in", "is", "contains", "starts_with", "ends_with", "matches"),
                    prefix=r"\b",
                    suffix=r"\b(?!\s*:)",
                ),
                Operator.Word,
            ),
            (r"[a-z_]\w*(?=\()", Name.Builtin),
            (r"([a-z_]\w*)(\s*)(:)", bygroups(Name.Attribute, Whitespace, Punctuation)),
            *_REST,
        ]
    }
