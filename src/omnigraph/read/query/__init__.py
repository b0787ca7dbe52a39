"""A compiled read query, with facts that are derived from the query text. They are computed once per query."""
