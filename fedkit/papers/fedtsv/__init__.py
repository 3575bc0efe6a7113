"""FedTSV: the settings, runs, tables and claims of its evaluation."""

#: known without the runs, which import torch
EXPERIMENTS = ("figures", "study", "timings")
