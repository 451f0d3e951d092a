"""One scrubber of secrets: nothing that a recording or a redacted file holds is a password, and both are for the user alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from ringwright.cli import main
from ringwright.ground import scrub
from ringwright.ground.errors import EXIT_GOOD
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once

SECRETS = {
    "--password=hunter2secret": "hunter2secret",
    "--password hunter2secret": "hunter2secret",
    "--hf-token='a b c'": "a b c",
    "--hfToken abc123": "abc123",
    "HF_TOKEN=hf-of-mine": "hf-of-mine",
    "AWS_SECRET_ACCESS_KEY=wJalr/XUtn+FEMI": "wJalr/XUtn+FEMI",
    "WANDB_API_KEY=0123456789abcdef": "0123456789abcdef",
    '{"password": "p w d", "n": 1}': "p w d",
    "key AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "x hf_abcdefghijklmnopqrstuvwxyz012345": "hf_abcdefghijklmnopqrstuvwxyz012345",
    "x ghp_abcdefghijklmnopqrstuvwxyz012345": "ghp_abcdefghijklmnopqrstuvwxyz012345",
    "x github_pat_11ABCDEFG0abcdefghij": "github_pat_11ABCDEFG0abcdefghij",
    "x sk-proj-abcdefghijklmnop1234": "sk-proj-abcdefghijklmnop1234",
    "x xoxb-123456789012-abcdef": "xoxb-123456789012-abcdef",
    "Authorization: Bearer abc.def-123": "abc.def-123",
    "postgres://me:pa55@db/x": "pa55",
    "https://s3/x?a=1&X-Amz-Signature=abcdef&b=2": "abcdef",
    "curl -u me:pa55 http://x": "pa55",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----": "MIIE",
}
PLAIN = [
    "train.py --max-tokens=512 --tokenizer=gpt2 --moe-token-dispatcher-type alltoall --eos-token=3 --lr 1e-4 --key value",
    "NCCL_DEBUG set by environment to INFO.",
    "the token was lost on rank 3",
    "PWD=/data USER=me KEYS=3",
    "https://host/path?x=1",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS.items(), ids=range(len(SECRETS)))
def test_a_secret_is_hidden(text: str, secret: str) -> None:
    assert secret not in scrub.scrub(text)
    assert scrub.HIDDEN in scrub.scrub(text)
    assert scrub.scrub(scrub.scrub(text)) == scrub.scrub(text)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_none_stays(text: str) -> None:
    assert scrub.scrub(text) == text


def test_the_word_after_an_option_is_its_value() -> None:
    assert scrub.words(["a", "--password", "x", "--token", "-v", "--seed", "3"]) == [
        "a",
        "--password",
        "***",
        "--token",
        "-v",
        "--seed",
        "3",
    ]


@pytest.mark.slow
def test_a_recording_holds_no_secret_and_is_for_the_user_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = tmp_path / "job.py"
    job.write_text(
        "import torch, torch.distributed as d\nd.init_process_group('gloo')\nd.all_reduce(torch.ones(4))\nd.destroy_process_group()\n"
    )
    words = [f"{name}={value}" for name, value in (("--password", "hunter2secret"), ("--token", "abcd1234efgh"))]
    words += ["--hf", "hf_abcdefghijklmnopqrstuvwxyz012345", "--api-key", "alone987", "--lr=0.1"]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29761", "RANK": "0", "WORLD_SIZE": "1"}
    command = [
        sys.executable,
        "-m",
        "ringwright",
        "run",
        "--out",
        str(tmp_path / "rec"),
        "--json",
        "--",
        sys.executable,
        str(job),
        *words,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, umask=0o022)
    held = {path.name: path.read_text() for path in (tmp_path / "rec").iterdir()} | {"told": done.stdout}
    assert any(name.startswith("calls.") for name in held)
    for name, text in held.items():
        for secret in ("hunter2secret", "abcd1234efgh", "hf_abcdefghij", "alone987"):
            assert secret not in text, name
    assert "--lr=0.1" in next(text for name, text in held.items() if name.startswith("run."))
    assert (tmp_path / "rec").stat().st_mode & 0o777 == 0o700
    assert {
        path.name: oct(path.stat().st_mode & 0o777)
        for path in (tmp_path / "rec").iterdir()
        if path.stat().st_mode & 0o077
    } == {}


def test_redaction_hides_what_an_older_recording_holds(tmp_path: Path) -> None:
    claims = pl.DataFrame(
        {"field": list(map(str, range(len(SECRETS)))), "value": list(SECRETS), "source": ["run"] * len(SECRETS)}
    )
    Trace.of({"claims": claims}, {"source": "run", "clock_note": "--token=abcd1234"}).save(tmp_path / "capture")
    out = tmp_path / "out.jsonl"
    assert main(["convert", str(tmp_path / "capture"), "-o", str(out), "--format", "jsonl", "--redact"]) == EXIT_GOOD
    text = out.read_text()
    assert [secret for secret in [*SECRETS.values(), "abcd1234"] if json.dumps(secret)[1:-1] in text] == []
