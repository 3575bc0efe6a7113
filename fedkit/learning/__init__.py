"""Many stacked models at once: layers, architectures, local training, evaluation of coalitions."""
