"""What must stay the same while the code changes: see ``tests/snapshots``."""

import pytest
from snapshots.files import WRITTEN, as_text, differences, read
from snapshots.rooms import ROOMS, listed


@pytest.mark.parametrize(
    "room", [pytest.param(r, marks=[pytest.mark.book] * (r == "pages")) for r in WRITTEN]
)
def test_snapshot(room: str) -> None:
    told = differences(read(room), as_text(ROOMS[room]()))
    assert not told, f"{len(told)} differ: " + "; ".join(told[:5])


def test_the_name_of_every_record_follows_from_its_settings() -> None:
    assert [row["record"] for row in ROOMS["record_names"]()] == listed()
