"""Infers a schema and a mapping from files and tables."""

from omnigraph.inference.infer import Inferred as Inferred
from omnigraph.inference.infer import infer as infer
