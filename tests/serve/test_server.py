"""A server as a user, a browser and a stranger meet it: answers, growth, ends, and what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

import ringwright
from patience import HANG_S
from serve_process import Served, serving

pytestmark = [pytest.mark.once, pytest.mark.slow]
LINE = "host:1:1 [0] NCCL INFO AllReduce: opCount {} sendbuff 0x1 recvbuff 0x2 count 1024 datatype 7 op 0 root 0 comm 0x9 [nranks=2] stream 0x3\n"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recording, a link that leads out of it, and a file that is none."""
    folder = tmp_path_factory.mktemp("given")
    shutil.copy(ringwright.sample(), folder / "job.log.gz")
    (folder / "sub").mkdir()
    (folder / "sub" / "nccl.log").write_text("".join(LINE.format(number) for number in range(20)))
    (folder / "none.txt").write_text("nothing of ours\n")
    secret = folder.parent / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "secret.log").write_text("secret\n")
    (folder / "out").symlink_to(secret)
    return folder


@pytest.fixture(scope="module")
def served(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("keep"), str(given / "job.log.gz"), str(given)) as server:
        yield server


@pytest.fixture(scope="module")
def job(served: Served, given: Path) -> str:
    opened = served.job(given / "job.log.gz")
    assert opened["state"] == "done", opened
    return str(opened["id"])


def told(served: Served, method: str, path: str, body: object = None) -> tuple[int, str]:
    status, _, data = served.ask(method, path, body)
    return status, data.decode()


def test_the_report_is_that_of_the_command_line(served: Served, given: Path, job: str) -> None:
    status, headers, page = served.ask("GET", f"/jobs/{job}/report")
    assert status == 200
    assert headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in headers["content-security-policy"]
    done = subprocess.run(
        [sys.executable, "-m", "ringwright", "summary", "--json", str(given / "job.log.gz")],
        capture_output=True,
        check=True,
        timeout=HANG_S,
    )
    assert (
        json.loads(served.ask("GET", f"/api/jobs/{job}/summary")[2])["operations"]
        == json.loads(done.stdout)["operations"]
    )
    assert b"Ringwright" in page


def test_answers_are_those_of_the_command_line(served: Served, given: Path, job: str) -> None:
    sql = "select op, sum(multiplicity) as calls from events where kind = 'collective' group by op"
    run = served.answer("query", [job], {"sql": sql})
    assert run["state"] == "done"
    assert run["rows"] == [["all-reduce", 3839]]
    assert run["columns"] == ["op", "calls"]
    assert run["command"].startswith("ringwright query ")
    assert str(given / "job.log.gz") in run["command"]
    again = served.json("POST", "/api/runs", {"question": "query", "jobs": [job], "answers": {"sql": sql}})
    assert again["id"] == run["id"]


def test_a_what_if_has_a_page_and_a_trace_that_opens(served: Served) -> None:
    run = served.answer(
        "collective", [], {"operation": "all-reduce", "fabric": "switch:4,rate=100Gb/s", "begin": "64K", "end": "64K"}
    )
    assert run["state"] == "done", run
    assert (run["has_page"], run["has_trace"]) == (True, True)
    assert "busbw" in run["text"]
    assert served.ask("GET", f"/runs/{run['id']}/page")[1]["content-security-policy"].startswith("sandbox")
    opened = served.json("POST", f"/api/runs/{run['id']}/open")
    state = served.until(
        lambda state: any(job["id"] == opened["id"] and job["state"] == "done" for job in state["jobs"])
    )
    assert any("all-reduce" in job["name"] for job in state["jobs"])
    timeline = served.json("GET", f"/api/jobs/{opened['id']}/timeline")
    assert timeline["events"] > 0
    seen = served.json("GET", f"/api/jobs/{opened['id']}/view?from=0&to={timeline['end_us']}&rows=0-255&pixels=800")
    assert sum(map(len, seen["events"])) == timeline["events"]


def test_what_cannot_be_read_says_why_and_harms_nothing(served: Served, given: Path) -> None:
    opened = served.job(given / "none.txt")
    assert opened["state"] == "failed"
    assert "no line of NCCL" in opened["told"]
    assert told(served, "GET", f"/jobs/{opened['id']}/report")[0] == 400


def test_an_answer_that_fails_keeps_its_words(served: Served, job: str) -> None:
    run = served.answer("query", [job], {"sql": "select nonsense from nowhere"})
    assert run["state"] == "failed"
    assert run["exit_code"] == 2
    assert "could not be answered" in run["told"]


def test_a_run_is_cancelled(served: Served, job: str) -> None:
    run = served.json("POST", "/api/runs", {"question": "live", "jobs": [job], "answers": {}})
    served.until(lambda state: any(each["id"] == run["id"] and each["state"] == "running" for each in state["runs"]))
    served.json("POST", f"/api/runs/{run['id']}/cancel")
    state = served.until(
        lambda state: any(each["id"] == run["id"] and each["state"] == "cancelled" for each in state["runs"])
    )
    assert state


def test_a_file_that_grows_is_read_anew_while_it_is_followed(served: Served, given: Path) -> None:
    file = given / "sub" / "nccl.log"
    opened = served.job(file)
    before = served.json("GET", f"/api/jobs/{opened['id']}/summary")["operations"][0]["records"]
    served.json("POST", f"/api/jobs/{opened['id']}/follow", {"on": True})
    with file.open("a") as more:
        more.writelines(LINE.format(number) for number in range(20, 50))
    served.until(
        lambda state: any(
            job["id"] == opened["id"] and job["state"] == "done" and job["stamp"] != opened["stamp"]
            for job in state["jobs"]
        )
    )
    after = served.json("GET", f"/api/jobs/{opened['id']}/summary")["operations"][0]["records"]
    assert (before, after) == (20, 50)
    served.json("POST", f"/api/jobs/{opened['id']}/follow", {"on": False})


def test_what_is_sent_is_opened(served: Served) -> None:
    data = Path(ringwright.sample()).read_bytes()
    upload = served.json("POST", "/api/uploads")["upload"]
    assert served.json("PUT", f"/api/uploads/{upload}?name=job.log.gz", data) == {"size_bytes": len(data)}
    assert told(served, "PUT", f"/api/uploads/{upload}?name=job.log.gz", b"again")[0] == 400
    opened = served.json("POST", f"/api/uploads/{upload}/open")
    state = served.until(
        lambda state: any(job["id"] == opened["id"] and job["state"] == "done" for job in state["jobs"])
    )
    kept = next(job for job in state["jobs"] if job["id"] == opened["id"])
    assert kept["name"] == "job.log.gz"
    assert Path(kept["path"]).read_bytes() == data
    assert served.ask("DELETE", f"/api/jobs/{opened['id']}")[0] == 200
    assert not Path(kept["path"]).exists()


@pytest.mark.parametrize("packed", [True, False])
def test_a_saved_trace_may_be_sent_packed_or_file_by_file(served: Served, tmp_path: Path, packed: bool) -> None:
    saved = ringwright.read(ringwright.sample()).save(tmp_path / "run.trace")
    files = sorted(saved.iterdir())
    if packed:
        with tarfile.open(tmp_path / "rt.tgz", "w:gz") as archive:
            archive.add(saved, saved.name)
        files = [tmp_path / "rt.tgz"]
    upload = served.json("POST", "/api/uploads")["upload"]
    for file in files:
        served.json("PUT", f"/api/uploads/{upload}?name={file.name}", file.read_bytes())
    opened = served.json("POST", f"/api/uploads/{upload}/open")
    served.until(lambda state: any(job["id"] == opened["id"] and job["state"] == "done" for job in state["jobs"]))
    assert opened["name"] == ("rt.tgz" if packed else f"{files[0].name} and {len(files) - 1} more")
    assert served.json("GET", f"/api/jobs/{opened['id']}/summary")["ranks_seen"] == 16


def test_an_upload_that_breaks_off_leaves_nothing(served: Served) -> None:
    upload = served.json("POST", "/api/uploads")["upload"]
    where = urlsplit(served.url)
    with socket.create_connection(("127.0.0.1", where.port or 0), timeout=HANG_S) as wire:
        head = (
            f"PUT /api/uploads/{upload}?name=a.log HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 1000\r\n\r\nhalf"
        )
        wire.sendall(head.encode())
        status, words = told(served, "POST", f"/api/uploads/{upload}/open")
        assert status == 400, words
        assert "on its way" in words or "nothing was sent" in words
    for _ in range(int(HANG_S)):
        status, words = told(served, "POST", f"/api/uploads/{upload}/open")
        assert status == 400, words
        if "nothing was sent" in words:
            return
        time.sleep(0.05)
    raise AssertionError("what was sent in part is still there")


# ---- strangers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8642"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({}, 200),
    ],
)
def test_other_sites_may_ask_nothing(served: Served, headers: dict[str, str], status: int) -> None:
    assert served.ask("POST", "/api/uploads", {}, headers)[0] == status


def test_every_answer_closes_the_page_in(served: Served) -> None:
    for path in ("/", "/static/main.js", "/api/state", "/nothing", "/static/nothing"):
        _, headers, _ = served.ask("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../gate.py", "/static/..%2fgate.py", "/static/%2e%2e/gate.py", "/../../etc/passwd", "//etc/passwd",
        "/jobs/../../etc/passwd/report", "/jobs/..%2f..%2fx/report", "/runs/%2e%2e/page", "/api/runs/..", "/api/names/../x",
        "/api/names/formats", "/jobs/000000000000/report", "/runs/000000000000/out", "/static/index.html%00.js",
    ],
)  # fmt: skip
def test_no_path_leads_out(served: Served, path: str) -> None:
    status, words = told(served, "GET", path)
    assert status in (307, 400, 404), words
    assert "root:" not in words


def test_nothing_beside_what_was_given_is_listed_or_opened(served: Served, given: Path) -> None:
    outside = [
        given.parent,
        given / "out",
        given / "out" / "secret.log",
        given / ".." / "secret",
        Path("/etc"),
        Path("/etc/passwd"),
    ]
    for path in outside:
        status, words = told(served, "GET", f"/api/browse?path={quote(str(path))}")
        assert status == 400, (path, words)
        status, words = told(served, "POST", "/api/jobs", {"path": str(path)})
        assert status == 400, (path, words)
    listed = served.json("GET", f"/api/browse?path={quote(str(given))}")["entries"]
    assert sorted(entry["name"] for entry in listed) == ["job.log.gz", "none.txt", "sub"]
    roots = {entry["path"] for entry in served.json("GET", "/api/browse")["entries"]}
    assert str(given.resolve()) in roots


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"question": 7}', b'{"question": "convert"}',
        b'{"question": "query", "jobs": "x"}', b'{"question": "query", "jobs": ["../.."]}', b'{"question": "collective", "answers": []}',
        b'{"question": "collective", "answers": {"operation": "all-reduce", "fabric": "/etc/passwd"}}',
        b'{"question": "collective", "answers": {"operation": "all-reduce", "fabric": "--output=/tmp/x"}}',
        b'{"question": "collective", "answers": {"output": "/tmp/x"}}', b"{" + b" " * (1 << 21) + b"}",
    ],
)  # fmt: skip
def test_what_is_no_question_is_refused(served: Served, body: bytes) -> None:
    before = len(served.json("GET", "/api/state")["runs"])
    status, words = told(served, "POST", "/api/runs", body)
    assert status == 400, words
    assert set(json.loads(words)["error"]) == {"what", "where", "try"}
    assert len(served.json("GET", "/api/state")["runs"]) == before


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize(
    "query",
    ["from=nan&to=1&rows=0", "from=1&to=0&rows=0", "from=0&to=inf&rows=0", "from=0&to=1&rows=x", "from=0&to=1&rows=-1",
     "from=0&to=1&pixels=1e9&rows=0", "from=0&to=1&pixels=-5", "from=x"],
)  # fmt: skip
def test_a_view_of_nothing_is_refused(served: Served, job: str, query: str) -> None:
    status, words = told(served, "GET", f"/api/jobs/{job}/view?{query}")
    assert status == 400, words


def test_a_hundred_viewers_at_once(served: Served, job: str) -> None:
    def look(_: int) -> tuple[int, int]:
        return served.ask("GET", f"/jobs/{job}/report")[0], served.ask("GET", "/api/state")[0]

    with ThreadPoolExecutor(100) as viewers:
        assert set(viewers.map(look, range(100))) == {(200, 200)}


# ---- beginning and ending


def test_a_token_is_asked_for_beyond_this_machine(tmp_path: Path) -> None:
    with serving(tmp_path / "keep", "--host", "0.0.0.0") as server:
        token = urlsplit(server.url).query.removeprefix("token=")
        assert len(token) >= 24
        assert server.ask("GET", "/")[0] == 401
        assert server.ask("GET", "/?token=wrong")[0] == 401
        assert server.ask("POST", "/api/uploads", {})[0] == 401
        assert server.ask("GET", "/api/state", headers={"Cookie": "ringwright-token=wrong; \x01=;;"})[0] == 401
        status, headers, _ = server.ask("GET", f"/?token={token}&x=1")
        assert (status, headers["location"]) == (303, "/?x=1")
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=Lax" in headers["set-cookie"]
        cookie = {"Cookie": headers["set-cookie"].partition(";")[0]}
        assert server.ask("GET", "/api/state", headers=cookie)[0] == 200
        assert server.ask("GET", "/api/state", headers={"Authorization": f"Bearer {token}"})[0] == 200
        assert server.ask("GET", f"//evil.example/?token={token}")[1]["location"].startswith("/evil.example")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_0_also_where_somebody_listens(number: int, tmp_path: Path) -> None:
    with serving(tmp_path / "keep") as server:
        where = urlsplit(server.url)
        listener = http.client.HTTPConnection("127.0.0.1", where.port or 0, timeout=HANG_S)
        listener.request("GET", "/api/news", headers={"Host": where.netloc})
        assert listener.getresponse().readline().startswith(b"data: ")
        assert server.end(number) == 0
        listener.close()


def test_killed_and_begun_again_nothing_is_lost(given: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    with serving(keep, str(given / "job.log.gz")) as server:
        opened = server.job(given / "job.log.gz")
        answered = server.answer("summary", [opened["id"]], {})
        running = server.json("POST", "/api/runs", {"question": "live", "jobs": [opened["id"]], "answers": {}})
        server.until(
            lambda state: any(run["id"] == running["id"] and run["state"] == "running" for run in state["runs"])
        )
        server.end(signal.SIGKILL)
    with serving(keep) as server:
        state = server.json("GET", "/api/state")
        runs = {run["id"]: run for run in state["runs"]}
        assert [job["id"] for job in state["jobs"]] == [opened["id"]]
        assert server.ask("GET", f"/jobs/{opened['id']}/report")[0] == 200
        assert server.json("GET", f"/api/runs/{answered['id']}")["text"] == answered["text"]
        assert runs[running["id"]]["state"] == "interrupted"
        assert server.end() == 0


def test_commands_end_with_a_server_that_was_killed(given: Path, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("the kernel of Linux does it")
    with serving(tmp_path / "keep", str(given / "job.log.gz")) as server:
        opened = server.job(given / "job.log.gz")
        running = server.json("POST", "/api/runs", {"question": "live", "jobs": [opened["id"]], "answers": {}})
        server.until(
            lambda state: any(run["id"] == running["id"] and run["state"] == "running" for run in state["runs"])
        )
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        assert children
        server.end(signal.SIGKILL)
    for child in children:
        for _ in range(int(HANG_S * 20)):
            if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2]:
                break
            os.sched_yield()
            signal.sigtimedwait([signal.SIGUSR2], 0.05)
        else:
            raise AssertionError(f"{child} lives on")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringwright", "serve", *words],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_a_port_that_is_taken_and_a_folder_in_use_are_said(tmp_path: Path) -> None:
    with serving(tmp_path / "keep") as server:
        port = urlsplit(server.url).port
        taken = run("--port", str(port), "--keep", str(tmp_path / "other"))
        assert taken.returncode == 2
        assert "cannot be listened on" in taken.stderr
        used = run("--port", "0", "--keep", str(tmp_path / "keep"))
        assert used.returncode == 2
        assert str(tmp_path / "keep") in used.stderr


@pytest.mark.parametrize(
    "words", [["--port", "70000"], ["--port", "-1"], ["--host", "no.such.host.invalid"], ["--for", "soon"]]
)
def test_addresses_that_are_none(words: list[str], tmp_path: Path) -> None:
    done = run(*words, "--keep", str(tmp_path / "keep"))
    assert done.returncode == 2, done.stderr
    assert "try:" in done.stderr


@pytest.mark.parametrize("name", ["no-such-file.log", "-"])
def test_what_is_not_there_is_said_at_once(name: str, tmp_path: Path) -> None:
    done = run(name, "--port", "0", "--for", "1s", "--keep", str(tmp_path / "keep"))
    assert done.returncode == 3, done.stderr
    assert "is not there" in done.stderr


def test_it_ends_by_itself_after_a_while(tmp_path: Path) -> None:
    done = run("--sample", "--port", "0", "--for", "1s", "--keep", str(tmp_path / "keep"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("serving http://127.0.0.1:")
