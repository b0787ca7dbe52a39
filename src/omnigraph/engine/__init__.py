"""The engine: a `Session` for one open graph, and one module per verb, such as `load` and `merge`."""
