"""A compiled read query with derived facts. The facts depend only on the query, so they are computed once per query."""
