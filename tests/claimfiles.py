"""A claims file with its printed tables, written into a folder for a test."""

from pathlib import Path

from reproduction.claims import Claims, read_claims


def claims_in(folder: Path, text: str, **tables: str) -> Claims:
    """Write and read ``claims.yaml`` and ``printed/<table>.csv``."""
    (folder / "printed").mkdir(parents=True, exist_ok=True)
    (folder / "claims.yaml").write_text(text, "utf-8")
    for name, rows in tables.items():
        (folder / "printed" / f"{name}.csv").write_text(rows, "utf-8")
    return read_claims(folder / "claims.yaml")
