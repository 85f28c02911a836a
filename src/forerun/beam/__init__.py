"""Beam search: plain, and with drafts, which gives the same beams in fewer passes."""
