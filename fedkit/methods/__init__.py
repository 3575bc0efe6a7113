"""One file per paper: its algorithm, in the paper's order, with equation numbers; and baselines."""
