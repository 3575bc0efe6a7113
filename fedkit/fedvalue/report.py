"""What a task party reads after a secure count: values, what chance alone would give, tests."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedkit.fedvalue.cmi import PartyValues
from fedkit.fedvalue.protocol.parties import SecureCounts
from fedkit.fedvalue.significance import Evidence, permutation_p_values_from_table

__all__ = ["ValueReport", "assess"]

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

_UNTESTED = (
    "warning: nothing is tested, and a party of pure noise has a corrected value above 0 in about "
    "half of all runs: test before you pay (--test)"
)


@dataclass(frozen=True, eq=False, repr=False)
class ValueReport:
    """Values from a verified table.

    Attributes
    ----------
    counts : SecureCounts
        The table.
    plugin : PartyValues
        The plug-in values (the paper's).
    corrected : PartyValues or None
        With less bias, if that was asked for.
    evidence : Evidence or None
        Permutation tests, if made.
    label : str
        Name of the label.
    """

    counts: SecureCounts
    plugin: PartyValues
    corrected: PartyValues | None
    evidence: Evidence | None
    label: str = "the label"

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Parties with a plug-in value above 0 and a corrected one that is not."""
        if self.corrected is None:
            return ()
        pairs = zip(self.plugin.names, self.plugin.values, self.corrected.values, strict=True)
        return tuple(n for n, plain, fair in pairs if plain > NOTHING >= fair)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Parties with a plug-in value above 0 and an adjusted p-value above 0.05.

        These rows do not show that they tell more than chance beside the task party's binned
        columns.  That is not to say that they are worthless: with more rows, or beside other
        parties, they may tell something.
        """
        if self.evidence is None:
            return ()
        pairs = zip(self.plugin.names, self.plugin.values, self.evidence.adjusted, strict=True)
        return tuple(name for name, value, p in pairs if value > NOTHING and p > LEVEL)

    def columns(self) -> dict[str, list[str]]:
        """Return the printed table: title of a column, and its text for each party."""
        shown = {"party": list(self.plugin.names), "plug-in": _six(self.plugin.values)}
        errors = {"": self.plugin}
        if self.corrected is not None:
            shown[self.corrected.correction] = _six(self.corrected.values)
            errors = {" (plug-in)": self.plugin, f" ({self.corrected.correction})": self.corrected}
        for which, values in errors.items():
            if not values.exact:
                shown[f"standard error{which}"] = _six(values.standard_errors)
        if self.evidence is not None:
            shown["p"] = [f"{p:.4f}" for p in self.evidence.p_values]
            shown["p (Holm)"] = [f"{p:.4f}" for p in self.evidence.adjusted]
        return shown

    def lines(self) -> Iterator[str]:
        """Yield what is printed: the checks, the values, what each column is, and warnings."""
        for line in self._sentences():
            if line.startswith("\t"):  # a row of the table is not folded
                yield line[1:]
            else:
                folded = textwrap.wrap(line, 80, subsequent_indent="    ", break_on_hyphens=False)
                yield from folded or [""]

    def _sentences(self) -> Iterator[str]:
        counts = self.counts
        many = f"{counts.queries} quer{'y' if counts.queries == 1 else 'ies'}"
        yield (
            f"verified: {many} with {_and(counts.duplications)} copies of an ID and "
            f"{_and(counts.artificial)} artificial IDs; {int(counts.counts.sum())} IDs counted"
        )
        yield f"checks that hold: {', '.join(counts.checks)}"
        yield (
            "a server that changed the table at all stayed undetected with probability "
            f"{_probability(counts.bound)}{' at most' if counts.bound < 0.995 else ''}"
        )
        if counts.bound > 0.05:
            yield "  (as many artificial IDs as there are rows, or more, lower it: --artificial)"
        yield ""
        shown = self.columns()
        widths = [max(map(len, [title, *cells])) for title, cells in shown.items()]
        for row in zip(*([title, *cells] for title, cells in shown.items()), strict=True):
            first, *others = (text.rjust(w) for text, w in zip(row, widths, strict=True))
            yield "\t" + "  ".join([first.strip().ljust(widths[0]), *others])
        own = f"{self.plugin.task_value:.6f}"
        if self.corrected is not None:
            own += f"; {self.corrected.correction}: {self.corrected.task_value:.6f}"
        yield f"the task party's own columns tell {own}"
        yield ""
        yield f"values are information about {self.label} in nats (1 bit = 0.693)"
        for title in shown:
            text = _LEGEND.get("standard error" if title.startswith("standard") else title)
            if text is not None:
                yield f"  {title}: {text}"
        for name in self.doubtful:
            at = self.plugin.names.index(name)
            assert self.corrected is not None
            yield (
                f"warning: {name} has {self.plugin.values[at]:.6f} by the plug-in and "
                f"{self.corrected.values[at]:.6f} without chance: no reason to pay it"
            )
        unproven = [name for name in self.unproven if name not in self.doubtful]
        if self.evidence is None:
            yield _UNTESTED
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
        counts, names = self.counts, self.plugin.names

        def by_party(numbers: Any) -> dict[str, float]:
            return dict(zip(names, map(float, numbers), strict=True))

        def values(found: PartyValues | None) -> dict[str, Any] | None:
            if found is None:
                return None
            errors = None if found.exact else by_party(found.standard_errors)
            return {
                "correction": found.correction, "values": by_party(found.values),
                "task_value": found.task_value, "exact": found.exact, "standard_errors": errors,
            }  # fmt: skip

        tests = None
        if self.evidence is not None:
            tests = {
                "given": self.evidence.given, "p": by_party(self.evidence.p_values),
                "p_holm": by_party(self.evidence.adjusted),
                "contributions": by_party(self.evidence.contributions),
            }  # fmt: skip
        return {
            "unit": "nats", "label": self.label, "parties": list(names),
            "rows": int(counts.counts.sum()), "cells": len(counts.counts),
            "plugin": values(self.plugin), "corrected": values(self.corrected), "tests": tests,
            "doubtful": list(self.doubtful),
            "unproven": None if self.evidence is None else list(self.unproven),
            "queries": counts.queries,
            "duplications": list(counts.duplications), "artificial": list(counts.artificial),
            "undetected_at_most": counts.bound, "seconds": counts.seconds,
        }  # fmt: skip


def assess(
    counts: SecureCounts,
    *,
    correction: str = "permutation",
    test: bool | None = None,
    draws: int = 999,
    seed: int = 0,
    label: str = "the label",
) -> ValueReport:
    """Value the data parties of a verified table.

    Parameters
    ----------
    counts : SecureCounts
        The table.
    correction : {"permutation", "miller-madow", "plugin"}
        What stands beside the plug-in value; "plugin" for nothing.
    test : bool, optional
        Also test each party beside the task party alone: the null hypothesis is that its cells
        are independent of the label given the task party's binned columns, see
        :mod:`.significance` for what a proxy and a copy get.  By default where that takes some
        seconds at most.
    draws, seed : int
        Of the tests, and of sampled orders where there are too many parties.
    label : str
        Name of the label, for the text.

    Raises
    ------
    ValueError
        If the correction is unknown or `draws` is below one.
    """
    check_correction(correction)
    plugin = counts.values(seed=seed)
    corrected = None
    if correction != "plugin":
        corrected = counts.values(correction=correction, draws=0, seed=seed)
    evidence = None
    if test is None:
        labels = len(set(counts.task_cells[:, 1].tolist()))
        test = len(counts.counts) * labels * draws <= TEST_WORK
    if test:
        evidence = permutation_p_values_from_table(
            counts.cells, counts.task_cells, counts.counts,
            names=counts.parties[1:], draws=draws, seed=seed,
        )  # fmt: skip
    return ValueReport(counts, plugin, corrected, evidence, label)


def check_correction(correction: str) -> None:
    """Refuse a correction that counts do not allow."""
    if correction not in CORRECTIONS:
        raise ValueError(
            f"correction is {correction!r}; from counts it is 'permutation', 'miller-madow', or "
            "'plugin' for none"
        )


def _six(numbers: Any) -> list[str]:
    return [f"{number:.6f}" for number in numbers]


def _and(numbers: tuple[int, ...]) -> str:
    return " and ".join(map(str, numbers))


def _probability(bound: float) -> str:
    return f"{bound:.2g}" if bound < 0.995 else "close to 1"
