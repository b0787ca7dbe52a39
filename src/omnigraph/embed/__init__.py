"""Embeddings: texts become vectors, with a model that is at hand or one behind HTTP."""

from omnigraph.embed.cache import Tally
from omnigraph.embed.columns import Sought, check_model, embed_column, embed_queries
from omnigraph.embed.embedder import Embedder, Purpose
from omnigraph.embed.offline import OfflineEmbedder
from omnigraph.embed.settings import default_embedder

__all__ = [
    "Embedder",
    "OfflineEmbedder",
    "Purpose",
    "Sought",
    "Tally",
    "check_model",
    "default_embedder",
    "embed_column",
    "embed_queries",
]
