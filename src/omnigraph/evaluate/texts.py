"""Text operators: `contains`, `starts_with`, `ends_with` and `matches`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.dtypes import StringDType

from omnigraph.errors import ExecutionError, cut
from omnigraph.evaluate.values import Mask, Value, broadcast, collapse_constant
from omnigraph.lang.query import ir
from omnigraph.lang.schema.pattern_hints import pattern_hint
from omnigraph.lang.schema.regex import pattern_error, translated

_Strings = npt.NDArray[Any]

_ONE_PATTERN: dict[ir.CompareOp, Callable[[pa.Array, str], pa.Array]] = {
    ir.CompareOp.CONTAINS: pc.match_substring,
    ir.CompareOp.STARTS_WITH: pc.starts_with,
    ir.CompareOp.ENDS_WITH: pc.ends_with,
    ir.CompareOp.MATCHES: lambda texts, pattern: matches(texts, pattern),
}

_EACH_PATTERN: dict[ir.CompareOp, Callable[[_Strings, _Strings], Mask]] = {
    ir.CompareOp.CONTAINS: lambda texts, parts: np.strings.find(texts, parts) >= 0,
    ir.CompareOp.STARTS_WITH: np.strings.startswith,
    ir.CompareOp.ENDS_WITH: np.strings.endswith,
}


def match_text(op: ir.CompareOp, text: Value, pattern: Value) -> Value:
    """Whether a text contains, starts with, ends with or matches a pattern. False if either is null.

    Raises:
        ExecutionError: a pattern of `matches` is not a valid regular expression.
    """
    if isinstance(pattern, pa.Scalar):
        found = _one_pattern(op, broadcast(text, 1), pattern.as_py())
    else:
        texts = broadcast(text, len(pattern))
        known = pc.and_(texts.is_valid(), pattern.is_valid())
        each = _each_regex if op is ir.CompareOp.MATCHES else _each_part
        found = pc.and_(each(op, texts.fill_null(""), pattern.fill_null("")), known)
    return collapse_constant(found, text, pattern)


def matches(texts: pa.Array, pattern: str) -> pa.Array:
    """Whether a regular expression matches a part of each text. Character classes and boundaries are Unicode-aware."""
    made = translated(pattern)
    found = pc.match_substring_regex(texts, made.text)
    if made.tags is None:
        return found
    foreign = pc.invert(pc.string_is_ascii(texts)).fill_null(False)
    if not pc.any(foreign).as_py():
        return found
    tags = made.tags
    others = pc.replace_substring(texts.filter(foreign), "_", tags.underscore)
    others = pc.replace_substring_regex(others, tags.word, tags.tagged)
    return pc.replace_with_mask(found, foreign, pc.match_substring_regex(others, tags.pattern))


def _one_pattern(op: ir.CompareOp, texts: pa.Array, pattern: str | None) -> pa.Array:
    if pattern is None:
        return pa.repeat(False, len(texts))
    if op is ir.CompareOp.MATCHES:
        _check(pattern)
    return _ONE_PATTERN[op](texts, pattern).fill_null(False)


def _check(pattern: str) -> None:
    reason = pattern_error(pattern)
    if reason is not None:
        raise ExecutionError(f"'{cut(pattern)}' is not a regular expression: {reason}", hint=pattern_hint(reason))


def _each_part(op: ir.CompareOp, texts: pa.Array, parts: pa.Array) -> pa.Array:
    found = _EACH_PATTERN[op](_strings(texts), _strings(parts))
    # numpy strips trailing NUL characters. Handle the few texts with such characters one by one.
    zeros = pc.or_(pc.ends_with(texts, "\0"), pc.ends_with(parts, "\0"))
    for row in np.flatnonzero(zeros.to_numpy(zero_copy_only=False)):
        found[row] = _ONE_PATTERN[op](texts.slice(row, 1), parts[row].as_py())[0].as_py()
    return pa.array(found)


def _strings(column: pa.Array) -> _Strings:
    return np.array(column.to_numpy(zero_copy_only=False), StringDType())


def _each_regex(op: ir.CompareOp, texts: pa.Array, patterns: pa.Array) -> pa.Array:
    """Match each text with the pattern of its row. Each distinct pattern is compiled once."""
    encoded = patterns.dictionary_encode()
    found = np.zeros(len(texts), bool)
    for i, pattern in enumerate(encoded.dictionary.to_pylist()):
        rows = np.flatnonzero(encoded.indices.to_numpy() == i)
        found[rows] = _one_pattern(op, texts.take(pa.array(rows)), pattern).to_numpy(zero_copy_only=False)
    return pa.array(found)
