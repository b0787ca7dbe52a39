"""Planning: in which steps a query is answered, and what those steps did."""
