"""The audit: what users run to see the promises kept on their machine."""
