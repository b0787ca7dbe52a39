"""How texts become words: Lance's own analysis, so that an index and a scan mean the same words."""

from __future__ import annotations

from typing import Any

import lance

from omnigraph.lang.query import ir


def settings(analyzer: ir.Analyzer) -> dict[str, Any]:
    """An analyzer as Lance takes it, for texts and for an index alike. No word is too long."""
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
    """The words of a text in order, and the place of each. Words that are left out leave their places empty.

    Places are counted from the first word that is there.
    """
    found = lance.tokenize(text, **settings(analyzer))
    return [token.text for token in found], [token.position for token in found]
