"""FedMS: the settings, runs, tables and claims of its evaluation."""

#: known without the runs, which import torch
EXPERIMENTS = ("table1", "table2", "five_clients", "detection", "study", "tuning", "partition")
