"""The choice of draft: what a pass costs, what guesses are worth, and which of them to score."""
