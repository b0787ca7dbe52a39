"""Embeddings: compute vectors from texts, with an offline model or an HTTP provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.lazy_names import lazy_names

if TYPE_CHECKING:
    from omnigraph.embed.cache import Tally
    from omnigraph.embed.columns import SearchText, check_model, embed_column, embed_queries
    from omnigraph.embed.embedder import Embedder, Purpose
    from omnigraph.embed.offline import OfflineEmbedder
    from omnigraph.embed.settings import default_embedder
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "cache": ("Tally",),
            "columns": ("SearchText", "check_model", "embed_column", "embed_queries"),
            "embedder": ("Embedder", "Purpose"),
            "offline": ("OfflineEmbedder",),
            "settings": ("default_embedder",),
        },
    )

__all__ = [
    "Embedder",
    "OfflineEmbedder",
    "Purpose",
    "SearchText",
    "Tally",
    "check_model",
    "default_embedder",
    "embed_column",
    "embed_queries",
]
