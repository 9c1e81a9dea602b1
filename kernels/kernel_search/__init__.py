"""Triton kernel search: tasks, proposers, judge, policies, worker."""
