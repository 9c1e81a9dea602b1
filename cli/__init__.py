"""The espalier program: thin commands, lazy imports."""
