"""The loop as an asset graph: wiring only, each asset calls one function of the folders below."""
