"""FedMS: the settings, runs, tables and claims of its evaluation."""
