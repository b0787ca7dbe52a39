"""Node and edge tables of a snapshot, with numbered entities and cached columns; sorting of integer arrays."""
