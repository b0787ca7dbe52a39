"""The engine: a `Session` for one open graph, and one module per verb."""
