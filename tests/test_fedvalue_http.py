"""The counting protocol over HTTP: what the server refuses and never sees, and the commands."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from refusals import refused
from test_fedvalue_report import DATA, NOISE, REAL, TASK, Y

from fedkit import __main__ as cli
from fedkit.fedvalue import commands, http
from fedkit.fedvalue.information import mshapley_cmi
from fedkit.fedvalue.protocol.crypto import seal
from fedkit.fedvalue.protocol.messages import ID_BYTES, Job, JobUnknown, Order, Upload
from fedkit.fedvalue.protocol.parties import TaskParty, parties_of
from fedkit.fedvalue.protocol.uploads import DataParty

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
TestClient = pytest.importorskip("starlette.testclient").TestClient
uvicorn = pytest.importorskip("uvicorn")

PARTIES = ("shop", "bank", "telco")
TOKENS = "task shop t-shop\ntask rival t-rival\n\ndata bank t-bank\ndata telco t-telco\n"
KEY = bytes(range(32))
PAGE = (Path(__file__).parents[1] / "book" / "fedvalue-service.md").read_text("utf-8")


class House:
    """A counting server, and every byte that reached it; its clients need no sockets."""

    url = "http://127.0.0.1:8765"

    def __init__(self, folder, monkeypatch):
        (folder / "tokens").write_text(TOKENS)
        self.folder, self.received = folder, {}
        self.restart()

        def client(headers, **_):
            return TestClient(self.watched, base_url=self.url, headers=headers)

        monkeypatch.setattr(httpx, "Client", client)

    def restart(self):
        self.app = http.create_app(self.folder / "tokens", 1e6)

    async def watched(self, scope, receive, send):
        async def heard():
            message = await receive()
            request = scope["method"], scope["path"], dict(scope["headers"]).get(b"authorization")
            self.received.setdefault(request, []).append(message.get("body", b""))
            return message

        await self.app(scope, heard, send)

    def bodies(self, method):
        return [bodies for request, bodies in self.received.items() if request[0] == method]

    def counter(self, party):
        return http.RemoteCounter(self.url, f"t-{party}")

    def ask(self, party, method, path, **options):
        headers = {} if party is None else {"Authorization": f"Bearer t-{party}"}
        return TestClient(self.watched, headers=headers).request(method, path, **options)


@pytest.fixture
def house(tmp_path, monkeypatch):
    return House(tmp_path, monkeypatch)


def job(name="j1", note=b"sealed", parties=PARTIES):
    return Job(name, parties, {"bank": note, "telco": b"for telco"})


def upload(rows=6, extra=b""):
    ids = np.repeat(np.arange(rows, dtype=np.uint8), ID_BYTES).reshape(rows, ID_BYTES)
    return Upload(ids, np.arange(rows, dtype=np.uint32) % 3, b"report" + extra)


def roles(**options):
    """The three parties of the report's example."""
    task, others = parties_of(DATA.codes(), names=("bank", "telco"), seed=0, **options)
    columns = task._roster, *DATA.codes()[:2]
    shop = TaskParty("shop", *columns, task._key, ("bank", "telco"), secret=KEY, **options)
    return shop, others


def test_a_restarted_server_gets_the_same_job_again(house):
    """It is killed when all have handed in, three times in each job."""
    shop, others = roles()
    remote, restarts = {name: house.counter(name) for name in PARTIES}, []

    def wait():
        for one in others:
            commands.answer_jobs(one, remote[one.name], once=True, say=lambda _: None)
        if len(restarts) < 6:
            restarts.append(house.restart())

    found = shop.count(remote["shop"], wait=wait)
    assert np.array_equal(found.values().values, mshapley_cmi(DATA).values)  # to the last bit
    sent = house.bodies("PUT")
    assert len(sent) == 6  # of two jobs, drawn once
    assert max(map(len, sent)) > 3
    assert all(len(set(bodies)) == 1 for bodies in sent)


@pytest.mark.parametrize(
    ("party", "method", "path", "content", "status", "words"),
    [
        (None, "GET", "/pending", None, 401, "token is unknown"),
        ("nobody", "GET", "/pending", None, 401, "token is unknown"),
        ("bank", "POST", "/jobs", job("j2"), 403, "task party"),
        ("rival", "POST", "/jobs", job("j2"), 403, "task party"),
        ("shop", "POST", "/jobs", Job("j2", ("shop", "telko")), 422, "no token of telko"),
        ("shop", "POST", "/jobs", job("j1", note=b"other"), 422, "another one"),
        ("shop", "POST", "/jobs", job("j2", parties=(*PARTIES, "bank")), 422, "each once"),
        ("shop", "POST", "/jobs", b"[" * 5000, 422, "a job is JSON"),
        ("shop", "POST", "/jobs", b'{"id": 3}', 422, "a job is JSON"),
        ("rival", "PUT", "/jobs/j1/upload", upload().to_bytes(), 403, "no part"),
        ("bank", "PUT", "/jobs/j9/upload", upload().to_bytes(), 404, "no job"),
        ("bank", "PUT", "/jobs/j1/upload", b"FKU2", 422, "not the message"),
        ("bank", "PUT", "/jobs/j1/upload", Upload(upload().ids[[0, 0]], upload().tokens[:2]), 422,
         "twice"),
        ("shop", "PUT", "/jobs/j1/upload", upload(extra=b"!"), 422, "already sent something else"),
        ("bank", "GET", "/jobs/j1/table", None, 403, "task party"),
        ("rival", "GET", "/jobs/j1/table", None, 403, "task party"),
        ("rival", "DELETE", "/jobs/j1", None, 403, "task party"),
        ("bank", "PUT", "/jobs/j1/upload", bytes(10**6 + 1), 413, "1000000 bytes accepted"),
        ("shop", "GET", "/docs", None, 404, "Not Found"),
    ],
)  # fmt: skip
def test_what_the_server_refuses(house, party, method, path, content, status, words):
    house.counter("shop").open(job())
    house.counter("shop").submit("j1", "shop", upload())
    if isinstance(content, Job):
        content = http._JOB.dump_json(content)
    elif isinstance(content, Upload):
        content = content.to_bytes()
    answer = house.ask(party, method, path, content=content)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert house.counter("shop").table("j1") is None  # and all is as it was


def test_a_repeated_request_changes_nothing_and_a_forgotten_job_is_unknown(house):
    shop, bank = house.counter("shop"), house.counter("bank")
    for _ in range(2):
        shop.open(job())
        bank.submit("j1", "bank", upload())
    assert shop.table("j1") is None
    assert shop.missing == ("shop", "telco")
    (waiting,) = house.counter("telco").pending("telco")
    assert waiting.envelopes == {"telco": b"for telco"}  # its own alone
    assert bank.pending("bank") == []
    refused("the token is that of 'bank'", bank.pending, "telco", error=http.CounterRefused)
    for _ in range(2):
        shop.close("j1")
    for ask in (lambda: shop.table("j1"), lambda: bank.submit("j1", "bank", upload())):
        refused("there is no job 'j1'", ask, error=JobUnknown)


def test_a_body_is_cut_off_while_it_arrives(house):
    house.counter("shop").open(job())
    sent, heard = [], []

    async def receive():
        heard.append(bytes(1 << 16))
        return {"type": "http.request", "body": heard[-1], "more_body": True}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "PUT", "path": "/jobs/j1/upload", "query_string": b"",
             "headers": [(b"authorization", b"Bearer t-bank")]}  # fmt: skip
    asyncio.run(house.app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert sum(map(len, heard)) < 1e6 + (1 << 17)


def test_the_server_receives_no_id_no_feature_and_no_label(house):
    ids = [f"person-{i:04d}" for i in range(64)]
    rng = np.random.default_rng(0)
    cells = [rng.integers(0, 4, 64) + 7_654_321 + 1000 * k for k in range(3)]
    task = TaskParty("shop", ids, cells[0], cells[1], KEY, ("bank",))
    bank = DataParty("bank", ids, cells[2], KEY)
    server, quiet = house.counter("bank"), {"once": True, "say": lambda _: None}
    wait = partial(commands.answer_jobs, bank, server, **quiet)
    task.count(house.counter("shop"), wait=wait)
    seen = b"".join(map(b"".join, house.received.values()))
    assert len(seen) > 4000
    assert not [person for person in ids if person.encode() in seen]
    for code in np.unique(np.concatenate(cells)).tolist():
        assert str(code).encode() not in seen
        assert code.to_bytes(8, "little") not in seen
    house.ask("bank", "POST", "/jobs", content=ids[0].encode())  # a careless party is heard
    assert ids[0].encode() in b"".join(map(b"".join, house.received.values()))


# ------------------------------------------------------------------------------ the client


def counter_of(monkeypatch, *answers):
    """A counter whose server gives these answers, and the last one from then on."""
    heard = []

    def answer(request):
        heard.append(request)
        given = answers[min(len(heard), len(answers)) - 1]
        if isinstance(given, Exception):
            raise given
        return httpx.Response(given[0], content=given[1])

    monkeypatch.setattr(http.time, "sleep", lambda _: None)
    counter = http.RemoteCounter(House.url, "t")
    counter._client = httpx.Client(base_url=House.url, transport=httpx.MockTransport(answer))
    return counter, heard


AWAY = httpx.ReadError("cut off")


@pytest.mark.parametrize(
    ("answer", "error", "words", "tries"),
    [
        ((200, b"FKT2 and more"), http.CounterUnavailable, "cannot be read", 1),
        ((202, b"{" + b"[" * 9999), http.CounterUnavailable, "cannot be read", 1),
        ((202, b"{}"), http.CounterUnavailable, "cannot be read", 1),
        (AWAY, http.CounterUnavailable, "7 times: ReadError: cut off", 7),
        ((502, b"gone"), http.CounterUnavailable, "502: b'gone'", 7),
        ((403, b'{"detail": "no\\u0007\\nway"}'), http.CounterRefused,
         r"\(403: 'no\\x07\\nway'\)", 1),
        ((404, b'{"detail": "where?"}'), JobUnknown, "404: 'where", 1),
        ((302, b""), http.CounterRefused, "302", 1),
    ],
)  # fmt: skip
def test_a_server_that_answers_nonsense(monkeypatch, answer, error, words, tries):
    counter, heard = counter_of(monkeypatch, answer)
    refused(words, counter.table, "j", error=error)
    assert len(heard) == tries


def test_a_server_that_fails_and_comes_back(monkeypatch):
    counter, _ = counter_of(monkeypatch, AWAY, (503, b""), (202, b'{"missing": ["a"]}'))
    assert counter.table("j") is None
    assert counter.missing == ("a",)
    monkeypatch.setattr(http, "_LONGEST", 3)
    refused("longer than 3 bytes", counter.table, "j", error=http.CounterUnavailable)


def test_a_token_is_not_sent_in_the_clear():
    for url in ("127.0.0.1:80", "ftp://a", "http://example.org"):
        refused("no address to send a token to", http.RemoteCounter, url, "t")
    http.RemoteCounter("http://[::1]:8765", "t")


# ------------------------------------------------------------------------------ the parties


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (Order(2, 3, cell=1), "as printed"),
        (Order(2, 3, hardened=False), "as printed"),
        (Order(2, 3, tokens="cell"), "as printed"),
        (Order(2, 30), "it asks for 465 encrypted IDs, over 400"),
        (None, "does not open"),
    ],
)
def test_a_party_leaves_alone_what_it_does_not_agree_to(house, order, words):
    bank, said, shop = roles()[1][0], [], house.counter("shop")
    envelope = b"anything"
    if order is not None:
        envelope = seal(order.to_bytes(), bank._key, "order", "j", "bank")
    shop.open(Job("j", ("shop", "bank"), {"bank": envelope}))
    commands.answer_jobs(bank, house.counter("bank"), max_rows=400, once=True, say=said.append)
    (sentence,) = said
    assert "job j is not answered" in sentence
    assert words in sentence
    assert shop.table("j") is None
    assert shop.missing == ("shop", "bank")


def test_a_party_waits_for_a_server_that_is_away_and_stops_at_a_refusal(monkeypatch):
    away, refused, said = http.CounterUnavailable("away"), http.CounterRefused("unknown here"), []
    monkeypatch.setattr(commands, "_POLL", 0)
    counter, bank = Mock(), roles()[1][0]
    counter.pending.side_effect = [away, away, refused, away]
    with pytest.raises(http.CounterRefused, match="unknown here"):
        commands.answer_jobs(bank, counter, say=said.append)
    assert said == ["away; trying on"]
    with pytest.raises(http.CounterUnavailable):
        commands.answer_jobs(bank, counter, once=True)


def test_a_full_disk_leaves_no_empty_secret(tmp_path, monkeypatch):
    file, write = tmp_path / "bank.secret", os.fdopen

    class Full:
        def __init__(self, *given):
            self.file = write(*given)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(commands.os, "fdopen", Full)
    with pytest.raises(OSError, match="No space left"):
        commands.own_secret(file)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    made = commands.own_secret(file)  # the second try is not blocked
    assert made == commands.own_secret(file)
    assert len(made) == 32
    assert file.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [file]


# ------------------------------------------------------------------------------ the commands


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the tables, tokens and key of three parties, which is where we are."""
    monkeypatch.chdir(tmp_path)
    Path("federation.key").write_text(KEY.hex())
    for name, columns in (("shop", {"x": TASK, "churn": Y}), ("bank", {"a": REAL.astype(int)}),
                          ("telco", {"b": NOISE})):  # fmt: skip
        rows = zip(*columns.values(), strict=True)
        lines = [",".join([f"{i:03d}", *map(str, row)]) for i, row in enumerate(rows)]
        Path(f"{name}.csv").write_text("\n".join([",".join(["id", *columns]), *lines]))
        Path(f"{name}.token").write_text(f"t-{name}\n")
    return tmp_path


def command(name, url, *more):
    first = ["party"]
    if name == "shop":
        first = ["value", "--parties", "bank,telco", "--label", "churn"]
    own = ["--data", f"{name}.csv", "--key-file", "federation.key", "--token-file"]
    return ["fedvalue", *first, "--name", name, *own, f"{name}.token", "--url", url, *more]


@pytest.fixture
def served(files, house, monkeypatch):
    """The data parties' programs answer whenever the task party waits."""

    def answer(_):
        for name in ("bank", "telco"):
            assert cli.main(command(name, house.url, "--once")) == 0

    def begin():
        monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=answer))

    return begin


def test_the_commands_from_files_to_values(served, house, capsys):
    assert cli.main(command("shop", house.url, "--timeout", "0.01")) == 1
    error = capsys.readouterr().err
    assert "missing: bank, telco. The same command repeats the same jobs" in error
    kept = Path("shop.secret").read_text()
    served()
    assert cli.main(command("shop", house.url, "--json", "values.json")) == 0
    said = capsys.readouterr().out
    found = json.loads(Path("values.json").read_text("utf-8"))
    assert found["plugin"]["values"] == mshapley_cmi(DATA).values.tolist()
    assert found["artificial"] == [3 * len(Y)] * 2
    assert sorted(found["duplications"]) == [2, 3]
    assert found["undetected_at_most"] < 0.0005
    assert "warning: telco is above 0" in said
    assert not Path("shop.secret").exists()  # the next run draws anew
    assert kept.strip() not in said
    assert Path("bank.secret").exists()


def test_a_failed_run_repeats_its_draws_and_another_command_has_its_own(files, house, capsys):
    names = []
    for more in ([], [], ["--parties", "telco,bank"], []):
        assert cli.main(command("shop", house.url, "--timeout", "0.01", *more)) == 1
        (name,) = {json.loads(body)["id"] for (body,) in house.bodies("POST")}
        names.append(name)
        house.received.clear()
    assert names[0] == names[1] == names[3] != names[2]
    Path("shop.secret").unlink()
    assert cli.main(command("shop", house.url, "--timeout", "0.01")) == 1
    assert names[0].encode() not in house.bodies("POST")[0][0]
    capsys.readouterr()


def test_a_cheating_server_ends_the_run_with_status_3(served, house, capsys, monkeypatch):
    honest = http.CountingServer.table

    def lying(self, job):
        table = honest(self, job)
        if table is not None:
            table.counts[:1] += 1
        return table

    monkeypatch.setattr(http.CountingServer, "table", lying)
    served()
    assert cli.main(command("shop", house.url)) == 3
    said, error = capsys.readouterr()
    assert "the server's answer is refused: iteration 1" in error
    assert "plug-in" not in said
    assert not Path("shop.secret").exists()


SERVE = ["fedvalue", "serve", "--tokens"]


@pytest.mark.parametrize(
    ("what", "more", "words"),
    [
        (SERVE, ["none"], "none: No such file"),
        (SERVE, ["bank.csv"], "has a line of 1 words, not task|data NAME TOKEN"),
        (SERVE, ["twice"], "has a party or a token twice"),
        ("bank", ["--data", "none.csv"], "none.csv: No such file"),
        ("bank", ["--columns", "a,z"], "columns id, a, z of 90 rows; expected"),
        ("bank", ["--key-file", "bank.token"], "64 hexadecimal digits (openssl rand -hex 32)"),
        ("bank", ["--token-file", "bank.csv"], "not the file of one token"),
        ("bank", ["--token-file", "federation.key"], "or it holds the parties' key"),
        ("shop", ["--correction", "knn"], "correction is 'knn'"),
        ("shop", ["--label", "Churn"], "columns id, Churn"),
        ("shop", ["--blocks", "3"], "blocks is 3; expected a power of two"),
        ("shop", ["--parties", ","], "expected different names, two or more"),
        ("shop", ["--token-file", "telco.token"], "the token is that of 'telco' and not of 'shop'"),
        ("shop", ["--token-file", "odd.token"], "this token is unknown here"),
    ],
)
def test_what_is_refused(files, house, capsys, what, more, words):
    Path("odd.token").write_text("t-odd")
    Path("twice").write_text("data bank a\ndata bank b\n")
    asked = command(what, house.url, *more) if isinstance(what, str) else [*what, *more]
    assert cli.main(asked) == 1
    error = capsys.readouterr().err
    assert error.startswith("fedkit: ")
    assert error.count("\n") == 1
    assert words in error


def test_the_server_listens_at_this_computer_alone(files, monkeypatch, capsys):
    places = []
    monkeypatch.setattr(uvicorn, "run", lambda app, host, **_: places.append(host))
    Path("tokens").write_text(TOKENS)
    assert cli.main([*SERVE, "tokens"]) == 0
    assert places == ["127.0.0.1"]
    assert "counting server at 127.0.0.1, port 8765" in capsys.readouterr().out


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_demonstration_of_the_page(tmp_path):
    """Programs of their own; the server is killed when it has uploads, and started again."""
    pytest.importorskip("sklearn")
    script = PAGE.split("```bash\n# demonstration\n")[1].split("```")[0]
    script = script.replace("8765", str(free_port()))
    ours = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
    }
    ended = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True,
                           text=True, timeout=300, env=os.environ | ours)  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "equal, to the last bit" in ended.stdout
    assert ended.stdout.count("is answered") == 5  # one of four twice
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_proxy_of_the_page(tmp_path):
    """A job through the page's own configuration, while 200 strangers send half a head each."""
    port, inner, file = free_port(), free_port(), tmp_path / "nginx.conf"
    (tmp_path / "tokens").write_text(TOKENS)
    served = uvicorn.Config(http.create_app(tmp_path / "tokens"), port=inner, ws="none")
    server = uvicorn.Server(served)
    thread = threading.Thread(target=server.run)
    thread.start()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", tmp_path / "server.key", "-out", tmp_path / "server.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    text = PAGE.split("```nginx\n")[1].split("```")[0]
    for here, there in (
        ("listen              443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/count", str(tmp_path)),
        ("127.0.0.1:8765", f"127.0.0.1:{inner}"),
        ("client_header_timeout 20s", "client_header_timeout 3s"),
    ):
        assert here in text
        text = text.replace(here, there)
    places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    text = "".join(f"{place}_temp_path {tmp_path}/{place};\n" for place in places) + text
    file.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{text}}}\n"
    )
    given = ["-p", str(tmp_path), "-e", str(tmp_path / "log"), "-c", str(file)]
    proxy = subprocess.Popen(["nginx", *given])
    try:
        while not (tmp_path / "pid").exists() or not server.started:
            assert proxy.poll() is None
            time.sleep(0.02)
        stranger = ssl.create_default_context(cafile=tmp_path / "server.crt")
        with contextlib.ExitStack() as stack:
            lines = []
            for _ in range(200):
                line = socket.create_connection(("127.0.0.1", port), timeout=30)
                line = stack.enter_context(stranger.wrap_socket(line, server_hostname="127.0.0.1"))
                line.sendall(b"GET /pending HTTP/1.1\r\nHost: count.example.org\r\nX-Half: ")
                lines.append(line)
            counters = {
                party: stack.enter_context(
                    http.RemoteCounter(
                        f"https://127.0.0.1:{port}", f"t-{party}", ca=tmp_path / "server.crt"
                    )
                )
                for party in PARTIES
            }
            counters["shop"].open(job())
            for party, counter in counters.items():
                counter.submit("j1", party, upload())
            assert counters["shop"].table("j1") is not None
            assert all(line.recv(1) == b"" for line in lines)  # closed, without an answer
    finally:
        proxy.terminate()
        proxy.wait(60)
        server.should_exit = True
        thread.join(60)
