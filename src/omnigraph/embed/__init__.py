"""Embeddings: compute vectors from texts, with an offline model or an HTTP provider."""

from omnigraph.embed.cache import Tally
from omnigraph.embed.columns import SearchText, check_model, embed_column, embed_queries
from omnigraph.embed.embedder import Embedder, Purpose
from omnigraph.embed.offline import OfflineEmbedder
from omnigraph.embed.settings import default_embedder

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
