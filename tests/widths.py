"""What sticks out of its column in a real browser; ``python tests/widths.py`` prints it.

Every page is loaded in a frame as wide as a telephone, with all folds open and all formulas set.
An element sticks out if it ends beyond the article and no box around it scrolls; one that is cut
off by a box that does not scroll sticks out too.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-quic --hide-scrollbars"
)
PROBE = Path(__file__).with_suffix(".html").read_text("utf-8")


def browser() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def sticking_out(
    html: Path, pages: Sequence[str], width: int = 390, limit: float = 600.0
) -> dict[str, list[str]]:
    """Return what sticks out of each page."""
    path = browser()
    if path is None:
        raise FileNotFoundError("no Chromium is installed")
    done, found = threading.Event(), dict[str, list[str]]()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/widths":
                super().do_GET()
                return
            probe = PROBE.replace("@PAGES", json.dumps(list(pages))).replace("@WIDTH", f"{width}")
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(probe.encode())

        def do_POST(self) -> None:
            found.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=os.fspath(html))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [path, *QUIET.split(), f"--user-data-dir={profile}", "--window-size=1000,1000"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        command.append(f"http://127.0.0.1:{server.server_port}/widths")
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            answered = done.wait(limit)
            process.terminate()
    server.shutdown()
    server.server_close()
    if not answered:
        raise TimeoutError(f"the browser said nothing within {limit:g} s")
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html")
    every = sorted([*folder.glob("book/*.html"), *folder.glob("notebooks/*.html")])
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in every]
    for page, lines in sorted(sticking_out(folder, names).items()):
        for line in lines:
            print(f"{page}: {line}")
