"""The verifiable counting protocol: parties, server, checks, bounds, and the attacks on it."""
