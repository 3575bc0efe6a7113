"""Frames as records give them, from a few numbers."""

import pandas as pd


def records(rows):
    """A frame of records: settings, and metrics per seed."""
    return pd.DataFrame(
        [
            {**settings, "seed": seed, "metric": name, "value": value}
            for settings, metrics in rows
            for name, values in metrics.items()
            for seed, value in enumerate(values)
        ]
    )


def series_of(rows):
    """A frame of series: settings, and values by name, one list per seed."""
    return pd.DataFrame(
        [
            {**settings, "seed": seed, "series": name, "index": i, "value": value}
            for settings, named in rows
            for name, seeds in named.items()
            for seed, values in enumerate(seeds)
            for i, value in enumerate(values)
        ]
    )
