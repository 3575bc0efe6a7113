"""What a data party remembers of the jobs that it has answered."""

from __future__ import annotations

from pathlib import Path

from fedkit.fedvalue.protocol.messages import Job, MessageError

__all__ = ["Answered"]


class Answered:
    """Jobs that were answered, each with a digest of what its answer follows from.

    Seals carry no date: whoever has kept an old job can send it again.  The same answer tells
    nothing new; an answer from other data, under the job's old keys, would.

    Parameters
    ----------
    path : Path, optional
        File that outlives the process, a line for each job; made if missing.

    Raises
    ------
    OSError
        If the file cannot be read.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._known = path, dict[str, str]()
        if path is not None and path.exists():
            for line in path.read_text("utf-8").splitlines():
                digest, _, job = line.partition(" ")
                self._known.setdefault(job, digest)

    def remember(self, job: Job, content: str) -> None:
        """Note a job, before its answer is sent.

        Parameters
        ----------
        job : Job
            The job.
        content : str
            Digest of its order and the party's data (:meth:`.roles.DataParty.content`).

        Raises
        ------
        MessageError
            If the job was answered before with another content.
        OSError
            If the file cannot be written.
        """
        if job.id not in self._known:
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(f"\n{content} {job.id}\n")  # first end a line that was cut off
            self._known[job.id] = content
        elif self._known[job.id] != content:
            raise MessageError(
                "it was answered before, and its order or this party's data have changed since; "
                "if it is not an old job sent again, the task party must start a new one"
            )
