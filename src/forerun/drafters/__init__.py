"""Whatever proposes tokens: the protocol and its implementations."""
