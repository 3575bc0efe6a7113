"""No test has a time limit, and the collector of garbage need not look at what importing made."""

import gc
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("fedkit", deadline=None)  # a loaded machine fails no example
hypothesis.settings.load_profile("fedkit")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def evaluation(request: pytest.FixtureRequest) -> Any:
    """The committed records of the paper whose findings a module of tests imports."""
    return request.module.findings.Evaluation("paper")
