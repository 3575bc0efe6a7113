"""The claims files of the papers: ``claims.yaml`` beside their modules."""

from __future__ import annotations

from fedkit.claims.claim import Claims, ClaimsError, parse_claims
from fedkit.papers import folder, packages

__all__ = ["claims_papers", "load_claims"]


def claims_papers() -> list[str]:
    """Return the papers that have a claims file, sorted."""
    return [paper for paper in packages() if (folder(paper) / "claims.yaml").is_file()]


def load_claims(paper: str) -> Claims:
    """Read the claims of a paper.

    Raises
    ------
    ClaimsError
        If the paper has no claims file, or the file is not of the declared form.
    """
    if paper not in claims_papers():
        raise ClaimsError(f"paper {paper!r} has no claims file; choose from {claims_papers()}")
    return parse_claims((folder(paper) / "claims.yaml").read_text("utf-8"))
