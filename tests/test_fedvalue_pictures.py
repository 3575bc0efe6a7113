import numpy as np
import pandas as pd
import pytest

from fedkit.papers.fedvalue.pictures import strips


def test_every_number_is_a_dot():
    frame = pd.DataFrame(
        {"d": list("aabb") * 3, "e": list("xyxy") * 3, "v": np.arange(12.0), "k": ["r", "n"] * 6}
    )
    picture = strips(frame, "d", "e", "v", "k", ylabel="nats")
    drawn = np.concatenate(
        [dots.get_offsets()[:, 1] for axis in picture.axes for dots in axis.collections]
    )
    assert sorted(drawn) == list(range(12))
    assert [axis.get_title() for axis in picture.axes] == ["a", "b"]
    assert len(picture.legends) == 1
    with pytest.raises(ValueError, match="missing"):
        strips(frame, "d", "e", "w", "k", ylabel="nats")
