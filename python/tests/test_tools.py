"""``python -m pccl top`` and ``python -m pccl demo``, as people run them."""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pccl
import pytest
from conftest import PATIENCE_S, admit, run_threads
from pccl.__main__ import main as program
from pccl.tools import demo_run
from pccl.tools.screen import age, plain_text, rate
from pccl.tools.status import StatusError, fetch, url_of
from pccl.tools.top import Look, picture

pytestmark = pytest.mark.torch_free

Start = Callable[..., "subprocess.Popen[str]"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pccl", *arguments]


def patient(**environment: str) -> dict[str, str]:
    """A process may be stopped for long on a busy machine, and must not be removed for that."""
    return {**os.environ, "PCCL_PEER_TIMEOUT_MS": str(int(PATIENCE_S * 1000)), **environment}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=patient(**environment)
    )


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[subprocess.Popen[str]] = []

    def begin(
        *arguments: str, environment: dict[str, str] | None = None, **keywords: Any
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            list(arguments), text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords},
            env={**(os.environ if environment is None else environment), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        made.append(process)
        return process

    yield begin
    for process in made:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def document(**changes: Any) -> dict[str, Any]:
    """The status of a master with two members, one of which waits."""
    peers = [
        {"peer": name, "address": "10.0.0.1:48149", "group": 0, "state": "member", "since_ms": 61_000,
         "heard_ms": 400, "synced": True, "waits": None}
        for name in ("aaaaaaaa", "bbbbbbbb")
    ]  # fmt: skip
    peers[0]["waits"] = {"vote": "update topology", "tag": None, "for_ms": 31_000, "others": 0}
    return {
        "version": "1.1.0", "run": "cccccccc", "incarnation": 1, "state": "serving", "uptime_ms": 70_000, "epoch": 2,
        "decisions": 12, "members": 2, "removed": 1, "optimizing": False, "votes_open": 1, "peers": peers,
        "journal_waits_ms": 12_000,
        "groups": [{
            "id": 0, "ring": ["aaaaaaaa", "bbbbbbbb"], "expected_revision": 7, "running": 0, "sync": None,
            "edges": [
                {"from": "aaaaaaaa", "to": "bbbbbbbb", "up": True, "bytes_per_second": 93_000_000},
                {"from": "bbbbbbbb", "to": "aaaaaaaa", "up": False, "bytes_per_second": None},
            ],
            "tally": {"committed": 100, "aborted": 3, "refused": 0, "committed_bytes": 4_000_000, "syncs": 7},
        }],
        "votes": [{"vote": "update topology", "group": None, "tag": None, "open_ms": 31_000, "voted": 1,
                   "missing": 1, "waits_for": ["bbbbbbbb"]}],
        "removals": [{"peer": "dddddddd", "reason": "silent for 10000 ms", "ago_ms": 5000}],
        **changes,
    }  # fmt: skip


class Page:
    """Serves one body on a port of its own."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                self.wfile.write(page.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[bytes], Page]]:
    made: list[Page] = []

    def begin(body: bytes) -> Page:
        made.append(Page(body))
        return made[-1]

    yield begin
    for page in made:
        page.close()


def look(page: Page, **changes: Any) -> Look:
    page.body = json.dumps(document(**changes)).encode()
    return Look(fetch(url_of(page.address)))


# ---- python -m pccl


def code(*arguments: str) -> int:
    """The exit code of a program that runs in this process. Another process takes long to start on a busy machine."""
    try:
        return program(arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    helped = run("--help")
    assert helped.returncode == 0 and "top" in helped.stdout and "demo" in helped.stdout
    assert code() == 2
    assert code("nothing") == 2
    assert "no command 'nothing'" in capsys.readouterr().err
    for name in ("top", "demo"):
        assert code(name, "--help") == 0
        assert capsys.readouterr().out.startswith("usage: ")


# ---- top


def test_top_of_a_master(start: Start) -> None:
    master = start(*command("master", "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"))
    assert master.stdout is not None
    listening, status = (master.stdout.readline().split()[-1] for _ in range(2))
    empty = run("top", "--master", status, "--once", "--plain", "--interval", "0")
    assert empty.returncode == 0 and "nobody is here yet" in empty.stdout

    shown: list[subprocess.CompletedProcess[str]] = []
    seen = threading.Event()

    def member(index: int) -> None:
        with pccl.Communicator(listening) as communicator:
            communicator.connect()
            admit(communicator, 2)
            if index == 1:
                while "1 voted" not in (view := run("top", "--master", status, "--once", "--interval", "0")).stdout:
                    assert view.returncode == 0
                shown.append(view)
                seen.set()
            communicator.update_topology()

    run_threads(2, member)
    text = shown[0].stdout
    assert "2 members, 0 to be admitted" in text
    assert text.count("127.0.0.1:") >= 3 and "\x1b" not in text
    assert "update topology for" in text and "waits for" in text
    other = run("top", "--master", listening, "--once")
    assert other.returncode == 1 and "not the one where peers connect" in other.stderr


def test_top_of_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert code("top", "--master", "127.0.0.1:1", "--once") == 1
    assert "pccl-master --status" in capsys.readouterr().err
    for wrong in ("::::", "127.0.0.1:99999", "ftp://host", "http://", "host:0"):
        assert code("top", "--master", wrong, "--once") == 2
        assert "write HOST:PORT" in capsys.readouterr().err
    assert code("top", "--interval", "-1") == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"hello", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000,
        json.dumps(document(peers=[1])).encode(), json.dumps(document(epoch="2")).encode(),
        json.dumps(document(members=True)).encode(), json.dumps(document(groups=None)).encode(),
        json.dumps({**document(), "votes": [{"vote": "x"}]}).encode(),
    ],
    ids=range(11),
)  # fmt: skip
def test_top_of_what_is_no_status(serve: Callable[[bytes], Page], body: bytes) -> None:
    with pytest.raises(StatusError, match="not the status of a master"):
        fetch(url_of(serve(body).address))


def test_top_tells_who_waits_and_how_fast_it_goes(serve: Callable[[bytes], Page]) -> None:
    page = serve(b"")
    before = look(page)
    later = document()["groups"]
    later[0]["tally"].update(committed=110, committed_bytes=24_000_000)
    now = look(page, uptime_ms=72_000, groups=later)
    text = "\n".join(plain_text(content) for content in picture(now, before, "url"))
    assert "110 reductions (5.0/s, 10 MB/s)" in text
    assert "aaaaaaaa -93 MB/s-> bbbbbbbb -x-> aaaaaaaa" in text
    assert "update topology for 31 s" in text
    assert "update topology: 1 voted, open for 31 s; waits for bbbbbbbb" in text
    assert "the disk of the journal has not answered for 12 s" in text
    assert "dddddddd  5.0 s ago: silent for 10000 ms" in text
    # A master that was started again has no counts before.
    again = "\n".join(plain_text(content) for content in picture(look(page, uptime_ms=1000), now, "url"))
    assert "/s," not in again


def test_top_writes_nothing_that_a_terminal_obeys(
    serve: Callable[[bytes], Page], capsys: pytest.CaptureFixture[str]
) -> None:
    page = serve(json.dumps(document(run="\x1b[31mred\x07")).encode())
    assert code("top", "--master", page.address, "--once", "--interval", "0") == 0
    shown = capsys.readouterr().out
    assert "?[31mred?" in shown and "\x1b" not in shown


def test_top_in_a_terminal(serve: Callable[[bytes], Page], start: Start) -> None:
    """Draws in place, shows when the master is silent, and restores the screen at Ctrl-C."""
    page = serve(json.dumps(document()).encode())
    ours, theirs = pty.openpty()
    process = start(
        *command("top", "--master", page.address, "--interval", "0.1"), stdout=theirs, stdin=theirs,
        environment={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = ""

        def until(text: str) -> None:
            nonlocal shown
            deadline = time.monotonic() + PATIENCE_S
            while text not in shown:
                assert select.select([ours], [], [], deadline - time.monotonic())[0], f"no {text!r} in {shown!r}"
                shown += os.read(ours, 65536).decode()

        until("aaaaaaaa")
        assert shown.startswith("\x1b[?1049h\x1b[?25l")
        page.body = b"nothing"
        until("as of ")
        page.body = json.dumps(document(run="eeeeeeee")).encode()
        until("eeeeeeee")
        process.send_signal(signal.SIGINT)
        until("\x1b[?25h\x1b[?1049l")
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None and process.stderr.read() == ""
    finally:
        os.close(ours)


@pytest.mark.parametrize("kind", [None, "dumb"])
def test_top_in_a_terminal_that_cannot_draw(
    serve: Callable[[bytes], Page], start: Start, kind: str | None
) -> None:
    """Without TERM, as in an empty environment, lines are printed one below the other."""
    page = serve(json.dumps(document()).encode())
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "TERM"}
    process = start(
        *command("top", "--master", page.address, "--interval", "0.1"), stdout=theirs, stdin=theirs,
        environment=environment if kind is None else {**environment, "TERM": kind},
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = ""
        deadline = time.monotonic() + PATIENCE_S
        while shown.count("pccl-master 1.1.0") < 2:
            assert select.select([ours], [], [], deadline - time.monotonic())[0], f"nothing more behind {shown!r}"
            shown += os.read(ours, 65536).decode()
        assert "\x1b" not in shown
    finally:
        os.close(ours)


def test_top_into_a_pipe_that_closes(serve: Callable[[bytes], Page], start: Start) -> None:
    page = serve(json.dumps(document()).encode())
    process = start(*command("top", "--master", page.address, "--plain", "--interval", "0.1"))
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith("pccl-master 1.1.0")
    process.stdout.close()
    process.stdout = None
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr.read() == ""


def test_units() -> None:
    assert [age(ms) for ms in (0, 9_999, 61_000, 7_800_000, 100_000_000)] == [
        "0.0 s", "10.0 s", "1 min 1 s", "2 h 10 min", "1 d 3 h"
    ]  # fmt: skip
    assert [rate(value) for value in (12, 1500, 93_000_000, 2.5e9)] == ["12 B/s", "1.5 kB/s", "93 MB/s", "2.5 GB/s"]
    assert url_of("host") == "http://host:48147/status"
    assert url_of("[::1]:80") == "http://[::1]:80/status"
    assert url_of("http://host:1/other") == "http://host:1/other"


# ---- demo


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_demo_goes_on_without_the_one_that_is_killed(tmp_path: Path) -> None:
    drawing = importlib.util.find_spec("matplotlib") is not None
    target = tmp_path / "curves.png"
    options = ["--picture", str(target)] if drawing else []
    done = run("demo", "--kill", "--plain", "--steps", "40", "--pace", "0", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 steps in" in done.stdout
    assert "worker 2 was killed at step" in done.stdout
    assert "worker 2 is back, at step" in done.stdout
    assert "all 3 workers hold the same weights" in done.stdout
    assert "behind each of 40 steps" in done.stdout
    assert done.stderr == ""
    if drawing:
        assert target.read_bytes().startswith(b"\x89PNG")


def test_demo_goes_on_without_the_one_that_leaves() -> None:
    done = run("demo", "--workers", "4", "--kill", "--leave", "--plain", "--steps", "40", "--pace", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker 0 leaves behind step 20" in done.stdout
    assert "worker 3 is back, at step" in done.stdout
    assert "all 3 workers hold the same weights" in done.stdout
    assert done.stderr == ""


def test_demo_compares_the_weights_of_every_step() -> None:
    nothing: Any = None
    run = demo_run.Run(demo_run.Plan(2, 12, kill=False, leave=False, pace=0))
    workers = [demo_run.Worker(index, nothing, nothing) for index in range(2)]
    event = {"step": 1, "loss": 1.0, "reduce_ms": 1.0, "world": 2, "sent": 4, "digest": "equal"}
    for worker in workers:
        run._take_step(worker, event)
    run._take_step(workers[0], {**event, "step": 2})
    with pytest.raises(demo_run.DemoError, match="worker 1 holds other weights than the others behind step 2"):
        run._take_step(workers[1], {**event, "step": 2, "digest": "other"})
    run.__exit__()


def test_demo_learns() -> None:
    done = run("demo", "--plain", "--workers", "2", "--steps", "60", "--pace", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    words = next(text for text in done.stdout.splitlines() if " steps in " in text).split()
    begin, end = (float(words[words.index(key) - 3]) for key in ("begin,", "end"))
    assert end < begin


def test_demo_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(text: str, *arguments: str) -> None:
        assert code("demo", *arguments) == 2
        assert text in capsys.readouterr().err

    says("--workers 3 or more", "--workers", "2", "--kill")
    says("--workers 3 or more", "--workers", "2", "--leave")
    says("--workers 4 or more", "--workers", "3", "--leave", "--kill")
    says("use 2 to 64", "--workers", "1")
    says("use 12 to", "--steps", "1")
    says("has to end with .png", "--picture", str(tmp_path / "curves.txt"))
    says("there is no directory", "--picture", str(tmp_path / "no" / "curves.png"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # cannot be imported
    says("pip install matplotlib", "--picture", str(tmp_path / "curves.png"))


def test_demo_with_workers_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('this one is broken')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run("demo", "--plain", PYTHONPATH=path)
    assert done.returncode == 1
    assert "this one is broken" in done.stderr


# A demo that ends while lines of its master are still to be delivered. The first of them blocks the delivering thread
# until the demo has removed its handler, for 1 s at most.
LATE_LINES = """
import logging, socket, sys, threading
from pccl.__main__ import main
from pccl.tools import demo_run

let_go = threading.Event()
class Handler(demo_run._LogLines):
    def emit(self, record):
        let_go.wait(1.0)
        super().emit(record)
    def close(self):
        let_go.set()
        super().close()

class Logger(logging.Logger):
    def removeHandler(self, handler):
        super().removeHandler(handler)
        handler.close()

close = demo_run.pccl.MasterNode.close
def disturbed(master):
    # Strangers, each of which is a warning of the master.
    for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
        with socket.create_connection(("127.0.0.1", master.port), source_address=(host, 0)) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            while stranger.recv(4096):
                pass
    close(master)

demo_run._LogLines = Handler
demo_run.pccl.MasterNode.close = disturbed
logging.getLogger("pccl").__class__ = Logger
sys.exit(main(["demo", "--plain", "--workers", "2", "--steps", "12", "--pace", "0"]))
"""


def test_demo_writes_no_line_of_its_master_when_it_is_over(start: Start) -> None:
    process = start(sys.executable, "-c", LATE_LINES)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, ""), output


def test_demo_into_a_pipe_that_closes(start: Start) -> None:
    process = start(*command("demo", "--plain", "--steps", "100000"), environment=patient())
    assert process.stdout is not None and process.stderr is not None
    assert "the master listens on" in process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, "")


def test_demo_with_a_closed_standard_output(start: Start) -> None:
    demo = command("demo", "--workers", "2", "--steps", "12", "--pace", "0")
    process = start("sh", "-c", 'exec "$@" >&-', "sh", *demo, environment=patient())
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_demo_leaves_nobody_behind(start: Start, number: signal.Signals) -> None:
    process = start(*command("demo", "--plain", "--steps", "100000"), environment=patient())
    assert process.stdout is not None and process.stderr is not None
    line = ""
    while "worker" not in line:
        line = process.stdout.readline()
        assert line, process.stderr.read()
    workers = workers_of(process)
    assert len(workers) == 3
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == (130 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + PATIENCE_S
    while not all(gone(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.01)  # only spares the processor
    if number == signal.SIGINT:
        assert process.stderr.read() == "interrupted; the workers are stopped\n"
