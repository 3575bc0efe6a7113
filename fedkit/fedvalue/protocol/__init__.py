"""The verifiable counting protocol of FedValue (Algorithm 1): parties, server, checks, attacks."""
