"""A compiled read query with derived facts. They depend on the query alone, so they are computed once per query."""
