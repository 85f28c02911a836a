"""Measurements: what a pass costs here, beside other engines and the machine's own limits."""
