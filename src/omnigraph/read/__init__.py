"""Reading: queries, searches, exports and blobs of one snapshot."""
