"""The claims files of the papers: ``fedkit/papers/<paper>/claims.yaml``."""

from __future__ import annotations

from importlib import resources

from fedkit.claims.claim import Claims, ClaimsError, parse_claims

__all__ = ["claims_papers", "load_claims"]


def claims_papers() -> list[str]:
    """Return the papers that have a claims file, sorted."""
    folder = resources.files("fedkit.papers")
    return sorted(item.name for item in folder.iterdir() if (item / "claims.yaml").is_file())


def load_claims(paper: str) -> Claims:
    """Read the claims of a paper.

    Raises
    ------
    ClaimsError
        If the paper has no claims file, or the file is not of the declared form.
    """
    if paper not in claims_papers():
        raise ClaimsError(f"paper {paper!r} has no claims file; choose from {claims_papers()}")
    return parse_claims(
        (resources.files("fedkit.papers") / paper / "claims.yaml").read_text("utf-8")
    )
