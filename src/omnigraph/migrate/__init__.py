"""Applies schema changes to stored data: computes values of new columns, checks stored rows, creates table writes."""
