"""A result, where it came from, and whether it is still true."""
