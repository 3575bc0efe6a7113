"""What a task party reads after a secure count: values, what chance alone would give, tests."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkit.checks import choice, flag, having, whole
from fedkit.extras import need
from fedkit.fedvalue.information import PartyValues, cells_of_table
from fedkit.fedvalue.protocol.parties import SecureCounts
from fedkit.fedvalue.significance import Evidence, permutation_p_values

__all__ = ["CORRECTIONS", "ValueReport", "assess"]

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

    def columns(self) -> dict[str, list[str]]:
        """Return the printed table: title of a column, and its text for each party."""
        values = {"plug-in": self.plugin}
        if self.corrected is not None:
            values[self.corrected.correction] = self.corrected
        shown = {"party": list(self.plugin.names)}
        shown |= {title: _digits(of.values, 6) for title, of in values.items()}
        for title, of in values.items():
            if not of.exact:
                which = f" ({title})" if len(values) > 1 else ""
                shown[f"standard error{which}"] = _digits(of.standard_errors, 6)
        if self.evidence is not None:
            shown["p"] = _digits(self.evidence.p_values, 4)
            shown["p (Holm)"] = _digits(self.evidence.adjusted, 4)
        return shown

    def lines(self) -> Iterator[str]:
        """Yield what is printed: the checks, the values, what each column is, and warnings."""
        shown = self.columns()
        yield from _folded(self._checks())
        yield from need("pandas", "run").DataFrame(shown).to_string(index=False).splitlines()
        yield from _folded(self._remarks(list(shown)))

    def _checks(self) -> Iterator[str]:
        counts = self.counts
        many = f"{counts.queries} quer{'y' if counts.queries == 1 else 'ies'}"
        if counts.blocks > 1:
            many += f" in {counts.blocks} parts, the weakest"
        elif counts.queries > len(counts.duplications):  # cell by cell
            many += ", the first of each iteration"
        copies, extra = (
            " and ".join(map(str, n)) for n in (counts.duplications, counts.artificial)
        )
        yield (
            f"verified: {many} with {copies} copies of an ID and {extra} artificial IDs; "
            f"{int(counts.counts.sum())} IDs counted"
        )
        yield f"checks that hold: {', '.join(counts.checks)}"
        chance = f"{counts.bound:.2g} at most" if counts.bound < 0.995 else "close to 1"
        yield (
            "a server that changed the table at all stayed undetected with probability " + chance
        )
        if counts.bound > 0.05:
            yield "  (as many artificial IDs as there are rows, or more, lower it)"
        yield ""

    def _remarks(self, titles: list[str]) -> Iterator[str]:
        own = f"{self.plugin.task_value:.6f}"
        if self.corrected is not None:
            own += f"; {self.corrected.correction}: {self.corrected.task_value:.6f}"
        yield f"the task party's own columns tell {own}"
        yield ""
        yield f"values are information about {self.label} in nats (1 bit = 0.693)"
        for title in titles[1:]:
            what = "standard error" if title.startswith("standard error") else title
            yield f"  {title}: {_LEGEND[what]}"
        for name in self.doubtful:
            at = self.plugin.names.index(name)
            assert self.corrected is not None
            yield (
                f"warning: {name} has {self.plugin.values[at]:.6f} by the plug-in and "
                f"{self.corrected.values[at]:.6f} without chance: no reason to pay it"
            )
        unproven = [name for name in self.unproven if name not in self.doubtful]
        if self.evidence is None:
            yield (
                "warning: nothing is tested, and a party of pure noise has a corrected value above "
                "0 in about half of all runs: test before you pay"
            )
        elif unproven:
            yield (
                f"warning: not shown to tell more than chance beside the task party (p (Holm) "
                f"above {LEVEL}): {', '.join(unproven)}"
            )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain lists, numbers and text."""
        counts, names, evidence = self.counts, self.plugin.names, self.evidence

        def by_party(numbers: Any) -> dict[str, float]:
            return dict(zip(names, map(float, numbers), strict=True))

        def values(of: PartyValues) -> dict[str, Any]:
            return {
                "correction": of.correction, "values": by_party(of.values),
                "task_value": of.task_value, "exact": of.exact,
                "standard_errors": None if of.exact else by_party(of.standard_errors),
            }  # fmt: skip

        tests = None if evidence is None else {
            "given": evidence.given, "p": by_party(evidence.p_values),
            "p_holm": by_party(evidence.adjusted),
            "contributions": by_party(evidence.contributions),
        }  # fmt: skip
        return {
            "unit": "nats", "label": self.label, "parties": list(names),
            "rows": int(counts.counts.sum()), "cells": len(counts.counts),
            "plugin": values(self.plugin),
            "corrected": None if self.corrected is None else values(self.corrected),
            "tests": tests, "doubtful": list(self.doubtful),
            "unproven": None if evidence is None else list(self.unproven),
            "queries": counts.queries, "blocks": counts.blocks,
            "duplications": list(counts.duplications), "artificial": list(counts.artificial),
            "undetected_at_most": counts.bound,
        }  # fmt: skip


def _digits(numbers: Any, places: int) -> list[str]:
    return [f"{number:.{places}f}" for number in numbers]


def _folded(lines: Iterable[str]) -> Iterator[str]:
    fold = textwrap.TextWrapper(80, subsequent_indent="    ", break_on_hyphens=False)
    for line in lines:
        yield from fold.wrap(line) or [""]


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
