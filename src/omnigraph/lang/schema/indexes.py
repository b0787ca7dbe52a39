"""Index declarations: the allowed kinds per type, and the options of each kind."""

from __future__ import annotations

from omnigraph.lang.schema import ast
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.schema.catalog import Index, IndexKind
from omnigraph.lang.schema.problems import Problems
from omnigraph.lang.types import Scalar, ValueType

KINDS = tuple(kind.value for kind in IndexKind if kind is not IndexKind.AUTO)

POSITIVE = "a whole number from 1"
BOOLEAN = "true or false"

LANGUAGES = (
    *("arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian"),
    *("norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish"),
)

OPTIONS: dict[IndexKind, dict[str, str | tuple[str, ...]]] = {
    IndexKind.BTREE: {},
    IndexKind.BITMAP: {},
    IndexKind.NGRAM: {},
    IndexKind.FTS: {
        "tokenizer": ("simple", "whitespace", "raw"),
        "language": LANGUAGES,
        "stem": BOOLEAN,
        "stop_words": BOOLEAN,
        "lower_case": BOOLEAN,
        "ascii_folding": BOOLEAN,
        "positions": BOOLEAN,
    },
    IndexKind.VECTOR: {
        "metric": ("l2", "cosine", "dot"),
        "method": ("ivf_flat", "ivf_sq", "ivf_pq", "ivf_hnsw_sq"),
        "partitions": POSITIVE,
        "sub_vectors": POSITIVE,
        "bits": POSITIVE,
    },
}
"""The options of each index kind: the allowed words, or a description of the value."""


def default_kind(type_: ValueType) -> IndexKind | None:
    """The default index kind of a type; None if a plain `@index` builds no index."""
    if type_.is_vector:
        return IndexKind.VECTOR
    if not type_.is_plain_scalar:
        return None
    if type_.scalar is Scalar.STRING and not type_.is_enum:
        return IndexKind.FTS
    return IndexKind.BTREE


def built_kind(declared: IndexKind, type_: ValueType) -> IndexKind | None:
    """The index kind that an `@index` builds, explicit or by default; None if it builds no index."""
    return default_kind(type_) if declared is IndexKind.AUTO else declared


def kind_fits(kind: IndexKind, type_: ValueType) -> bool:
    """Whether a property of this type can have an index of this kind."""
    if kind is IndexKind.VECTOR:
        return type_.is_vector
    if not type_.is_plain_scalar:
        return False
    if kind in (IndexKind.FTS, IndexKind.NGRAM):
        return type_.scalar is Scalar.STRING and not type_.is_enum
    # A bitmap index needs values that repeat exactly.
    return kind is IndexKind.BTREE or not type_.scalar.is_float


def read_index(problems: Problems, written: ast.IndexConstraint, type_of: dict[str, ValueType]) -> Index | None:
    """Read an index with its options. Reports an invalid index and returns None."""
    fields = tuple(sorted({name.text for name in written.fields}))
    if not written.options:
        return Index(fields)
    if len(fields) > 1:
        problems.report(
            "OG-SC-020",
            "an index over several properties takes no options",
            written.options[0].span,
            hint="declare one index per property",
        )
        return None
    type_ = type_of[fields[0]]
    kind = _read_kind(problems, written, type_)
    if kind is None:
        return None
    effective = built_kind(kind, type_)
    allowed = OPTIONS[effective] if effective else {}
    options: dict[str, str] = {}
    for option in written.options:
        if option.name in options or (option.name == "kind" and option is not _kind_option(written)):
            problems.report("OG-SC-020", f"option '{option.name}' is given twice", option.span)
        elif option.name != "kind" and _option_fits(problems, option, allowed, effective):
            options[option.name] = option.value.text
    return Index(fields, kind, tuple(sorted(options.items())))


def _kind_option(written: ast.IndexConstraint) -> ast.Argument | None:
    return next((option for option in written.options if option.name == "kind"), None)


def _read_kind(problems: Problems, written: ast.IndexConstraint, type_: ValueType) -> IndexKind | None:
    option = _kind_option(written)
    if option is None:
        return IndexKind.AUTO
    if option.value.text not in KINDS:
        problems.report(
            "OG-SC-020",
            f"there is no index kind '{option.value.text}'",
            option.value.span,
            unknown=(option.value.text, KINDS),
        )
        return None
    kind = IndexKind(option.value.text)
    if not kind_fits(kind, type_):
        fitting = [k for k in KINDS if kind_fits(IndexKind(k), type_)]
        problems.report(
            "OG-SC-019",
            f"'{written.fields[0].text}' is {type_}, which a {kind.value} index cannot hold",
            option.value.span,
            hint=f"kinds for {type_.with_nullable(False)}: {', '.join(fitting)}" if fitting else "remove the index",
        )
        return None
    return kind


def _option_fits(
    problems: Problems,
    option: ast.Argument,
    allowed: dict[str, str | tuple[str, ...]],
    kind: IndexKind | None,
) -> bool:
    if option.name not in allowed:
        what = f"a {kind.value} index" if kind else "this index"
        problems.report(
            "OG-SC-020",
            f"{what} has no option '{option.name}'",
            option.span,
            unknown=(option.name, allowed),
            hint=f"{what} takes no options",
        )
        return False
    values = allowed[option.name]
    text, kind_of_value = option.value.text, option.value.kind
    if isinstance(values, tuple):
        if text in values:
            return True
        problems.report(
            "OG-SC-020",
            f"'{text}' is not a value of option '{option.name}'",
            option.value.span,
            unknown=(text, values),
            hint="write one of " + ", ".join(values),
        )
        return False
    if values == BOOLEAN:
        fits = kind_of_value is LiteralKind.BOOL
    else:
        fits = kind_of_value is LiteralKind.INT and 1 <= int(text) < 2**31
    if not fits:
        problems.report("OG-SC-020", f"option '{option.name}' takes {values}", option.value.span)
    return fits
