"""Clients and the round loop: partitioners, selection, valuers, aggregation, adversaries,
retraining."""
