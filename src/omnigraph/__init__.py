"""OmniGraph: a typed property graph on Lance, with branches over the whole graph."""

__version__ = "0.1.0"
