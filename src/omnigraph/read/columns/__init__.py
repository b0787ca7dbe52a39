"""Node and edge tables of a snapshot as numbered entities with cached columns, and kernels over integer arrays."""
