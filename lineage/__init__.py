"""Right to use: retraction, policies, queries."""
