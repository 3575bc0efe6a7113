"""The verifiable counting protocol: parties, server, checks, bounds, and the attacks on it.

``secure`` runs all roles in one process; ``parties`` are the roles, ``messages`` what they send,
``counting`` the server, ``verification`` Algorithm 1's checks and ours, ``bounds`` what is proven
of them, ``leakage`` what true counts give away.
"""
