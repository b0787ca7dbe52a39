"""Spark itself: the session, jobs, staging and the shuffle. Everything else of the pipeline builds on these."""
