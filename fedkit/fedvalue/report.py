"""What a task party reads after a secure count: values, what chance alone would give, tests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.checks import choice, flag, having, whole
from fedkit.extras import need
from fedkit.fedvalue.information import PartyValues, cells_of_table
from fedkit.fedvalue.protocol.parties import SecureCounts
from fedkit.fedvalue.significance import Evidence, permutation_p_values

if TYPE_CHECKING:
    import pandas as pd

CORRECTIONS = ("permutation", "miller-madow", "plugin")
NOTHING = 1e-12  # nats: rounding, and no value
LEVEL = 0.05  # of the adjusted p-values
TEST_WORK = 20_000_000  # cells times labels times draws that are tested unasked: some seconds

_LEGEND = {
    "plug-in": "the paper's value, straight from the counts; noise has one too",
    "permutation": "the plug-in less what rows shuffled in place would get; noise has about 0",
    "miller-madow": "the plug-in with a first-order correction; too high where rows are few",
    "standard error": "of the sampled orders of the parties, not of the people",
    "p": "share of shuffles that tell as much beside the task party alone",
    "p (Holm)": "p adjusted for the number of parties: up to 0.05, more than chance",
}
#: digits of p-values, fewer than of values
_SHORT = dict.fromkeys(("p", "p (Holm)"), "{:.4f}".format)


@dataclass(frozen=True, eq=False, repr=False)
class ValueReport:
    """Values from a verified table: plug-in (the paper's), with less bias, and tested."""

    counts: SecureCounts
    plugin: PartyValues
    corrected: PartyValues | None
    evidence: Evidence | None
    label: str = "the label"

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Parties with a plug-in value above 0 and a corrected one that is not."""
        return self._paid_but(self.corrected is not None and self.corrected.values <= NOTHING)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Parties with a plug-in value above 0 and an adjusted p-value above 0.05.

        With more rows, or beside other parties, they may tell something.
        """
        return self._paid_but(self.evidence is not None and self.evidence.adjusted > LEVEL)

    def _paid_but(self, odd: Any) -> tuple[str, ...]:
        return tuple(np.array(self.plugin.names)[(self.plugin.values > NOTHING) & odd].tolist())

    def to_frame(self) -> pd.DataFrame:
        """Return the printed table, one row per party."""
        shown: dict[str, Any] = {"party": self.plugin.names, "plug-in": self.plugin.values}
        if self.corrected is not None:
            shown[self.corrected.correction] = self.corrected.values
        if not self.plugin.exact:
            shown["standard error"] = (self.corrected or self.plugin).standard_errors
        if self.evidence is not None:
            shown |= {"p": self.evidence.p_values, "p (Holm)": self.evidence.adjusted}
        return need("pandas", "run").DataFrame(shown)

    def __str__(self) -> str:
        """Return what is printed: the checks, the values, what each column is, and warnings."""
        table = self.to_frame()
        values = table.to_string(index=False, float_format="{:.6f}".format, formatters=_SHORT)
        above, below = map(_folded, self._checks()), map(_folded, self._remarks(map(str, table)))
        return "\n".join([*above, "", values, *below])

    __repr__ = __str__

    def _checks(self) -> Iterator[str]:
        counts = self.counts
        parts = f" in {counts.blocks} parts, the weakest" if counts.blocks > 1 else ""
        copies, extra = (
            " and ".join(map(str, n)) for n in (counts.duplications, counts.artificial)
        )
        yield (
            f"verified (queries: {counts.queries}{parts}): {copies} copies of an ID, {extra} "
            f"artificial IDs, {int(counts.counts.sum())} IDs counted"
        )
        yield f"checks that hold: {', '.join(counts.checks)}"
        chance = f"{counts.bound:.2g} at most" if counts.bound < 0.995 else "close to 1"
        yield f"a server that changed the table at all stayed undetected with probability {chance}"
        if counts.bound > 0.05:
            yield "  (as many artificial IDs as there are rows, or more, lower it)"

    def _remarks(self, titles: Iterable[str]) -> Iterator[str]:
        own = f"{self.plugin.task_value:.6f}"
        if self.corrected is not None:
            own += f"; {self.corrected.correction}: {self.corrected.task_value:.6f}"
        yield f"the task party's own columns tell {own}"
        yield ""
        yield f"values are information about {self.label} in nats (1 bit = 0.693)"
        yield from (f"  {title}: {_LEGEND[title]}" for title in titles if title in _LEGEND)
        for name in self.doubtful:
            yield (
                f"warning: {name} is above 0 by the plug-in alone, and not without chance: no "
                "reason to pay it"
            )
        if self.evidence is None:
            yield (
                "warning: nothing is tested, and a party of pure noise has a corrected value above "
                "0 in about half of all runs: test before you pay"
            )
        unproven = [name for name in self.unproven if name not in self.doubtful]
        if unproven:
            yield (
                f"warning: not shown to tell more than chance beside the task party (p (Holm) "
                f"above {LEVEL}): {', '.join(unproven)}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain lists, numbers and text."""
        counts, corrected, evidence = self.counts, self.corrected, self.evidence
        return {
            "label": self.label, "rows": int(counts.counts.sum()), "cells": len(counts.counts),
            "plugin": self.plugin.to_dict(),
            "corrected": None if corrected is None else corrected.to_dict(),
            "tests": None if evidence is None else evidence.to_frame().to_dict("list"),
            "doubtful": self.doubtful, "unproven": self.unproven,
            "queries": counts.queries, "blocks": counts.blocks,
            "duplications": counts.duplications, "artificial": counts.artificial,
            "undetected_at_most": counts.bound,
        }  # fmt: skip


def _folded(line: str) -> str:
    return textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False)


def assess(
    counts: SecureCounts, *, correction: str = "permutation", test: bool | None = None,
    draws: int = 999, seed: int = 0, label: str = "the label",
) -> ValueReport:  # fmt: skip
    """Value the data parties of a verified table.

    Parameters
    ----------
    counts : SecureCounts
        The table.
    correction : {"permutation", "miller-madow", "plugin"}
        What stands beside the plug-in value; "plugin" for nothing.
    test : bool, optional
        Also test each party beside the task party alone (see :mod:`.significance`); by default
        where that takes some seconds at most.
    draws, seed : int
        Of the tests, and of sampled orders where there are too many parties.
    label : str
        Name of the label, for the text.
    """
    choice("correction", correction, CORRECTIONS)
    having("counts", counts, "values", "task_cells")
    whole("draws", draws, 1)
    if test is not None:
        flag("test", test)
    plugin, corrected, evidence = counts.values(seed=seed), None, None
    if correction != "plugin":
        corrected = counts.values(correction=correction, seed=seed)
    if test is None:
        labels = len(set(counts.task_cells[:, 1].tolist()))
        test = len(counts.counts) * labels * draws <= TEST_WORK
    if test:
        cells = cells_of_table(counts.cells, counts.task_cells, counts.counts, counts.parties[1:])
        evidence = permutation_p_values(cells, draws=draws, seed=seed)
    return ValueReport(counts, plugin, corrected, evidence, label)
