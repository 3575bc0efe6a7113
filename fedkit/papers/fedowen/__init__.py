"""FedOwen: the settings, runs, tables and claims of its evaluation."""

#: known without the runs, which import torch
EXPERIMENTS = (
    "table1",
    "table2",
    "table3",
    "sweep_levels",
    "sweep_epsilon",
    "sensitivity",
    "classwise",
    "reduced",
    "round_errors",
)
