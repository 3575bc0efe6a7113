"""Print the book as it was built last: one page, and a PDF where there is a Chromium.

``make print`` calls this after ``make book``; nothing is run again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from reproduction.book.build import rendering

ROOT = Path(__file__).resolve().parent.parent
STAGE, BUILD = ROOT / "_stage", ROOT / "_build"
ROOT_PAGE = "book/intro.html"

#: An extension that names handlers for singlehtml hides all others' handlers for HTML from it.
HANDLERS = """
from sphinx.registry import SphinxComponentRegistry as Registry
add = Registry.add_translation_handlers
Registry.add_translation_handlers = lambda self, node, **given: add(
    self, node, **({"singlehtml": given["html"]} if "html" in given else {}) | given
)
"""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def one_page() -> Path:
    """Render the stage as one page."""
    command, environment = rendering(STAGE, ROOT, strict=False)
    command[2] = HANDLERS + command[2]
    shutil.rmtree(BUILD / "singlehtml", ignore_errors=True)
    (BUILD / "singlehtml" / "_static").mkdir(parents=True)  # else the logo becomes this name
    subprocess.run([*command, "--builder", "singlehtml"], env=environment, cwd=ROOT, check=True)
    made, page = BUILD / "singlehtml" / ROOT_PAGE, BUILD / "singlehtml" / "index.html"
    # its links hold from the folder above
    page.write_text(made.read_text("utf-8").replace(f'"{ROOT_PAGE}#', '"#'), "utf-8")
    made.unlink()
    return page


def pdf(browser: str, page: Path, target: Path) -> None:
    """Print a page by a browser without a window."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, "--headless", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        command += ["--virtual-time-budget=600000", "--no-pdf-header-footer"]
        command += [f"--print-to-pdf={target}", page.as_uri()]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)


def main() -> None:
    """Print what is there."""
    if not STAGE.is_dir():
        sys.exit("nothing to print yet: run 'make book'")
    page = one_page()
    print(f"one page: {page.relative_to(ROOT)}")
    browser = next((path for name in NAMES if (path := shutil.which(name))), None)
    if browser is None:
        print("no Chromium here: open that page in a browser, and print it from there")
        return
    target = BUILD / "fedkit.pdf"
    pdf(browser, page, target)
    print(f"PDF: {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
