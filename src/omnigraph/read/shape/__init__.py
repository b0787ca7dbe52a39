"""Shape operators: aggregate, filter groups, remove duplicates, sort and project the rows of a match."""
