"""No test has a time limit, and the collector of garbage need not look at what importing made."""

import gc

import hypothesis

hypothesis.settings.register_profile("fedkit", deadline=None)  # a loaded machine fails no example
hypothesis.settings.load_profile("fedkit")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
