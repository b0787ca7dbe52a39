"""The search benchmark: its documents, its questions, and the peer."""
