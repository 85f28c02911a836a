"""Keys and values of what a target has read."""
