"""What scores rows: the protocol and its implementations."""
