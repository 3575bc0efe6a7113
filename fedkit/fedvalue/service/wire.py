"""Names and jobs as they pass between the parties and the counting service."""

from __future__ import annotations

import base64
import re
from typing import Any

from fedkit.fedvalue.protocol.messages import Job, MessageError

__all__ = ["check_name", "clean", "job_from_json", "job_to_json"]

# Names travel in addresses: no slash, no control character, no leading dot.
_NAMES = {"job": r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "party": r"\w[\w .-]{0,63}"}


def check_name(kind: str, name: object) -> str:
    """Return the name of a job or party; a MessageError if it cannot travel in an address."""
    if not isinstance(name, str) or not re.fullmatch(_NAMES[kind], name) or name != name.strip():
        raise MessageError(
            f"{clean(name)!r} cannot name a {kind}; expected are 1 to 64 letters, digits, '.', '_' "
            "and '-' (spaces too, for a party), the first a letter or digit"
        )
    return name


def clean(text: object, limit: int = 300) -> str:
    """Return a foreign text as one short printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def job_to_json(job: Job) -> dict[str, Any]:
    """Write a job: its envelopes in base 64."""
    sealed = {n: base64.b64encode(text).decode() for n, text in sorted(job.envelopes.items())}
    return {"id": job.id, "parties": list(job.parties), "envelopes": sealed}


def job_from_json(data: object) -> Job:
    """Read a job."""
    if not isinstance(data, dict) or set(data) != {"id", "parties", "envelopes"}:
        raise MessageError("a job has the fields id, parties and envelopes, and no others")
    parties, envelopes = data["parties"], data["envelopes"]
    if not isinstance(parties, list) or len(parties) < 2:
        raise MessageError("a job needs a task party and at least one data party")
    names = tuple(check_name("party", name) for name in parties)
    if len(set(names)) < len(names):
        raise MessageError("a party is named twice in the job")
    if not isinstance(envelopes, dict) or not set(envelopes) <= set(names):
        raise MessageError("the envelopes of a job are for its parties, and for nobody else")
    try:
        opened = {name: base64.b64decode(text, validate=True) for name, text in envelopes.items()}
    except (TypeError, ValueError) as error:
        raise MessageError("an envelope is not written in base 64") from error
    return Job(check_name("job", data["id"]), names, opened)
