"""What docs/deploy holds is what clusters take: the pod's containers run here as processes, beside each other, on one folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from recorded_jobs import LOOP, environment, wait_for
from ringwright.formats.sources import read

pytestmark = pytest.mark.once

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
PROJECT = Path(__file__).parents[2]
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="no YAML parser")
    [job] = yaml.safe_load_all((DEPLOY / "job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def containers(pod: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}


def test_the_pod_gives_away_nothing(pod: dict[str, Any]) -> None:
    around = pod["securityContext"]
    assert around["runAsNonRoot"] is True
    assert around["runAsUser"] > 0
    assert around["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for name, each in containers(pod).items():
        assert each["securityContext"]["allowPrivilegeEscalation"] is False, name
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert "privileged" not in each["securityContext"], name
        assert "runAsUser" not in each["securityContext"], "one user reads what one user wrote"
        assert ":" in each["image"].rpartition("/")[2], name
        assert not each["image"].endswith(":latest"), name
        for variable in each.get("env", []):
            assert not re.search(r"(?i)key|token|secret|password", variable["name"]), name
            assert "secretKeyRef" not in str(variable), name
        words = [*each.get("command", []), *each.get("args", [])]
        if words[0] == "serve":
            assert words[words.index("--host") + 1] in LOOPBACK or "--token" in words
            assert "ports" not in each
    assert not any("secret" in volume or "hostPath" in volume for volume in pod["volumes"])


def test_sidecars_share_one_folder_with_the_job_and_end_with_it(pod: dict[str, Any]) -> None:
    assert pod["restartPolicy"] == "Never"
    assert {each["name"] for each in pod["initContainers"]} == {"serve", "live"}
    assert all(each["restartPolicy"] == "Always" for each in pod["initContainers"])
    volumes = {each["name"]: each for each in pod["volumes"]}
    for name, each in containers(pod).items():
        mounts = {mount["mountPath"]: mount["name"] for mount in each["volumeMounts"]}
        assert mounts["/recording"] == "recording", name
        assert set(mounts.values()) <= set(volumes), name
        assert "limits" in each["resources"], name
    assert all("emptyDir" in each for each in volumes.values())


def test_the_pod_ends_as_the_job_does_and_keeps_its_recording(pod: dict[str, Any], tmp_path: Path) -> None:
    program = tmp_path / "ringwright"
    program.write_text('#!/bin/sh\necho "$@" >>said\n[ "$1" = convert ] || exit 7\n')
    program.chmod(0o755)
    train = containers(pod)["train"]
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STORE": "s3://recordings", "POD_NAME": "train-x7"}
    done = subprocess.run([*train["command"], *train["args"]], env=around, cwd=tmp_path, check=False)
    assert done.returncode == 7
    assert "convert /recording/train -o s3://recordings/train-x7" in (tmp_path / "said").read_text()


def _here(words: list[str], folder: Path, port: int) -> list[str]:
    """The words of a container on this machine: its folders below one of ours, two ranks."""
    told = {"8642": str(port), "8": "2"}
    words = [re.sub(r"(?<![\w/])/(recording|tmp)\b", rf"{folder}/\1", told.get(word, word)) for word in words]
    return [
        re.sub(r"--nproc-per-node 8 train.py", f"--standalone --nproc-per-node 2 {folder}/train.py 40 slow 0", word)
        for word in words
    ]


@pytest.mark.torch
@pytest.mark.slow
def test_the_pod_runs(pod: dict[str, Any], tmp_path: Path) -> None:
    """The sidecars begin first, as a kubelet starts them, and see a job that comes later; the recording goes where it is to go."""
    pytest.importorskip("uvicorn", reason="nothing serves pages")
    for name in ("recording", "tmp", "bin", "store"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").write_text(LOOP)
    for name, module in {"ringwright": "ringwright", "torchrun": "torch.distributed.run"}.items():
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        program.chmod(0o755)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    around = environment(PATH=path, STORE=str(tmp_path / "store"), POD_NAME="train-x7")
    by_name = containers(pod)
    with contextlib.ExitStack() as ending:
        sidecars = {}
        for name in ("serve", "live"):
            out = ending.enter_context((tmp_path / f"{name}.txt").open("w"))
            words = ["ringwright", *_here(by_name[name]["args"], tmp_path, port)]
            words = ["1" if word == "10" else word for word in words]
            sidecars[name] = subprocess.Popen(words, env=around, cwd=tmp_path, stdout=out, stderr=out)
            ending.callback(sidecars[name].kill)
        wait_for(lambda: "serving" in (tmp_path / "serve.txt").read_text())
        train = by_name["train"]
        words = [*train["command"], *_here(train["args"], tmp_path, port)]
        done = subprocess.run(
            words, env=around, cwd=tmp_path, capture_output=True, text=True, timeout=3 * HANG_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert read(str(tmp_path / "store" / "train-x7")).meta["world"] == 2
        wait_for(lambda: _seen_live(tmp_path / "live.txt"))
        wait_for(lambda: _seen_served(tmp_path / "tmp" / "serve"))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert page.status == 200
        for each in sidecars.values():
            each.send_signal(signal.SIGTERM)
        assert sidecars["serve"].wait(HANG_S) == 0
        sidecars["live"].wait(HANG_S)


def _seen_live(out: Path) -> bool:
    looks = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    return any(operation["op"] == "all-reduce" for look in looks for operation in look["operations"])


def _seen_served(kept: Path) -> bool:
    jobs = [json.loads(path.read_text()) for path in kept.glob("jobs/*/job.json")]
    return bool(jobs) and all(job["state"] == "done" for job in jobs)


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_small_and_its_user_is_nobody() -> None:
    given = instructions()
    bases = [rest for word, rest in given if word == "FROM"]
    assert len(bases) == 2, "compilers stay behind"
    assert all(re.match(r"python:3\.\d+-slim-\w+( AS \w+)?$", base) for base in bases)
    final = given[[word for word, _ in given].index("FROM", 1) :]
    assert not any("apt-get" in rest or "g++" in rest for _, rest in final)
    [user] = [rest for word, rest in given if word == "USER"]
    assert user == "10001:10001"
    assert [word for word, _ in final].index("USER") > max(
        number for number, (word, _) in enumerate(final) if word == "RUN"
    )
    assert ("ENTRYPOINT", '["ringwright"]') in final
    assert not any(word in ("ADD", "EXPOSE") for word, _ in given)
    assert not re.search(r"(?i)token|password|secret", " ".join(rest for _, rest in given))


def test_the_image_is_made_of_files_that_are_there() -> None:
    """What is copied from the checkout is what its build needs."""
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    names = {name for each in copied for name in each}
    assert all((PROJECT / name).exists() for name in names)
    assert {
        "pyproject.toml",
        "CMakeLists.txt",
        "README.md",
        "LICENSE",
        "NOTICE",
        "src",
        "lab",
        "constraints.txt",
    } <= names
