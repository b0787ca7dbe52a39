"""Schema changes of a graph with data: values of new columns, checks of stored rows, and table writes."""
