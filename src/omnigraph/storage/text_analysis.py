"""Text analysis: Lance's own tokenizer, so that indexes and scans agree on words."""

from __future__ import annotations

from typing import Any

import lance

from omnigraph.lang.query import ir


def settings(analyzer: ir.Analyzer) -> dict[str, Any]:
    """Lance's settings for an analyzer, for texts and indexes. There is no limit on the length of words."""
    return {
        "base_tokenizer": analyzer.tokenizer,
        "language": analyzer.language.title(),
        "stem": analyzer.stem,
        "remove_stop_words": analyzer.stop_words,
        "lower_case": analyzer.lower_case,
        "ascii_folding": analyzer.ascii_folding,
        "max_token_length": None,
    }


def words_of(text: str, analyzer: ir.Analyzer) -> tuple[list[str], list[int]]:
    """The words of a text in order, with their positions. Omitted words leave gaps in the positions.

    Positions count from the first word that is not omitted.
    """
    found = lance.tokenize(text, **settings(analyzer))
    return [token.text for token in found], [token.position for token in found]
