"""Drafters learned from the target alone: captured text, losses, training, export."""
