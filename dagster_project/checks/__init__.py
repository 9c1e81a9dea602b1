"""Blocking checks on tables and views, run by Great Expectations."""
