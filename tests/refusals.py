"""What cannot be done is refused in one sentence on one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(
    words: str,
    call: Callable[..., Any],
    /,
    *given: Any,
    error: type[Exception] = ValueError,
    **more: Any,
) -> None:
    """Assert that a call is refused in a sentence with these words, a pattern."""
    with pytest.raises(error, match=words) as caught:
        call(*given, **more)
    assert "\n" not in str(caught.value)


def refusals(*cases: tuple[Callable[[], Any], str]) -> Callable[..., None]:
    """Return a test of calls, each with the words that refuse it."""

    @pytest.mark.parametrize(("call", "words"), cases)
    def test(call: Callable[[], Any], words: str) -> None:
        refused(words, call)

    return test
