"""`forerun bench generate`: sides that write the same prompts in turns, and what they took."""
