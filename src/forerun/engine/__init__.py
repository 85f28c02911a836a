"""The loop: draft, score, verify, cut, commit; many requests in one pass."""
