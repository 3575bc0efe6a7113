"""The claims files of the papers: ``claims.yaml`` in their packages."""

from __future__ import annotations

from fedkit.checks import warn
from fedkit.datasets.catalogue import names
from fedkit.datasets.movielens import RATINGS
from fedkit.datasets.tabular import TABLES
from reproduction import claims_file, packages
from reproduction.judging.claim import Claims, ClaimsError, parse_claims
from reproduction.records.outside import entered

__all__ = ["all_claims", "claims_papers", "load_claims"]


def claims_papers() -> list[str]:
    """Return the papers that have a claims file, sorted."""
    return [paper for paper in packages() if claims_file(paper) is not None]


def load_claims(paper: str) -> Claims:
    """Read the claims of a paper; ClaimsError if there are none, or not of the declared form."""
    file = claims_file(paper)
    if file is None:
        raise ClaimsError(
            f"paper {paper!r} has no claims file; choose from {', '.join(claims_papers())}"
        )
    try:
        claims = parse_claims(file.read_text("utf-8"))
    except (ClaimsError, ImportError):
        raise
    except Exception as error:  # no YAML, or of another form in the middle of it
        name = type(error).__name__
        raise ClaimsError(f"the claims file of {paper} cannot be read: {name}: {error}") from error
    for claim in claims.claims:
        if claim.rule == "exact":
            claim.exact()  # refuse here what it names and is not there
    known = {*names(), *TABLES, *RATINGS}
    unknown = sorted({name for sets in claims.data.values() for name in sets} - known)
    if unknown and paper not in entered():  # a paper from outside may bring its own data
        raise ClaimsError(f"data of {paper} has {unknown}; choose from {sorted(known)}")
    return claims


def all_claims() -> dict[str, Claims]:
    """Read the claims of all papers; a broken file of another package is left out, and told."""
    read = {}
    for paper in claims_papers():
        try:
            read[paper] = load_claims(paper)
        except ClaimsError as error:
            if paper not in entered():
                raise
            warn(f"paper {paper!r} is left out: {error}")
    return read
