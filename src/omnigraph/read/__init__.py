"""Reading: exports and blobs."""
