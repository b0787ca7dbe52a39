"""Changes of rows between two states of a graph: diffs, the changes of commits, and the change feed."""
