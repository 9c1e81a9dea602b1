"""One reader per log format; each yields the record types of transforms.records."""
