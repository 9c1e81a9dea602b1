"""Dagster wiring: definitions, assets, checks, schedules, sensors, resources."""
