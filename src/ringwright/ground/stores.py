"""What lies behind an address (``s3://bucket/run``, ``https://``), through fsspec: to be read, and to be written whole.

Credentials are for the store alone: what is shown, kept or answered has no user, password or query of an address (``shown``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ringwright.ground.errors import InputError, MissingExtraError, OutputError, RingwrightError, UsageError
from ringwright.ground.extras import install_named
from ringwright.ground.scratch import TemporaryFolder
from ringwright.ground.scrub import scrub

META = "meta.json"  # of a saved Trace: it is whole once this is there
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>[^\s'\"]*)")
_OF_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")  # container@account, which is no user
_WEB = ("http", "https")
_QUERY = re.compile(r"\?[^/]*=.*")  # in a store without queries a ? alone stands for a letter
_LIBRARY = re.compile(r"(?i)install (?P<name>[a-z][\w-]*)")
_OF_TRACE = re.compile(r"meta\.json|\w+\.(?:parquet|csv)|events/part-[\w-]+\.parquet")  # alone is removed
_MOST_WORDS = 300


def is_address(name: object) -> bool:
    """Say whether a name is an address, and no path of this machine."""
    return _SCHEME.match(str(name)) is not None


def shown(text: str) -> str:
    """Return a text whose addresses have neither user, password nor query."""
    return _ADDRESS.sub(_without_secrets, text)


def _without_secrets(match: re.Match[str]) -> str:
    scheme, (host, slash, path) = match["scheme"].lower(), match["rest"].partition("/")
    if "@" in host and (scheme not in _OF_CONTAINERS or ":" in host):
        host = host.rpartition("@")[2]
    elif ":" in host and not host.rpartition(":")[2].isdigit() and "@" in path:  # a password with a / in it
        host, slash, path = path.rpartition("@")[2].partition("/")
    path = re.split("[?#]", path)[0] if scheme in _WEB else _QUERY.sub("", path)
    return f"{match['scheme']}://{re.split('[?#]', host)[0]}{slash}{path}"


def connected(address: str) -> tuple[Any, str]:
    """Return the file system of an address and its path there.

    Raises MissingExtraError where a library is missing, UsageError for an address that is none or is made of several.
    """
    scheme = address.partition("://")[0].lower()
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"{scheme}:// is read by a library", where=shown(address), extra="stores") from error
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        library = _LIBRARY.search(str(error))
        remedy = install_named(library["name"]) if library else str(error)
        what = f"{scheme}:// needs its own library"
        raise MissingExtraError(what, where=shown(address), remedy=remedy, extra="stores") from error
    except ValueError as error:
        what = f"'{scheme}' is no kind of store"
        raise UsageError(what, where=shown(address), remedy="s3://, gs://, az://, https://") from error
    if "::" in address:
        what = "one address in another (::) is not followed"
        raise UsageError(what, where=shown(address), remedy="name the inner one")
    with answering(address):
        system, path = fsspec.core.url_to_fs(address)
        system.invalidate_cache()
    return system, path


@contextlib.contextmanager
def answering(address: str, kind: type[RingwrightError] = InputError) -> Iterator[None]:
    """Turn what the library of a store raises into an error of ``kind``, without its secrets."""
    try:
        yield
    except RingwrightError:
        raise
    except FileNotFoundError:
        raise kind(f"nothing at {shown(address)}", where=shown(address), remedy="look at the address") from None
    except Exception as error:  # noqa: BLE001 - each library has its own
        words = scrub(shown(" ".join(str(error).split())))
        user = address.partition("://")[2].rpartition("@")[0] if shown(address) != address else ""
        for secret in filter(None, re.split("[:@]", user)):
            words = words.replace(secret, "***")
        raise kind(
            f"the store says: {type(error).__name__}: {words[:_MOST_WORDS]}",
            where=shown(address),
            remedy="look at the address, and at the credentials where its library looks for them",
        ) from None


def target(goal: str | Path) -> str:
    """Return a target as it is told."""
    return shown(str(goal)) if is_address(goal) else str(Path(goal))


@contextlib.contextmanager
def delivered(goal: str | Path, *, force: bool) -> Iterator[Path]:
    """Give the path to write for a goal; that of an address is brought there when the block has ended, and not in an error.

    Raises UsageError where something is there and ``force`` is not given, OutputError where the store takes it not.
    """
    if not is_address(goal):
        yield Path(goal)
        return
    address = str(goal)
    system, path = connected(address)
    with answering(address, OutputError):
        is_folder = system.isdir(path)
        old = system.find(path) if is_folder else [path] if system.exists(path) else []
    if old and not force:
        raise _exists(address)
    inside = [each[len(path.rstrip("/")) + 1 :] for each in old] if is_folder else []
    if inside and (META not in inside or not all(map(_OF_TRACE.fullmatch, inside))):
        raise UsageError(f"{shown(address)} is not a capture; it will not be removed", remedy="name another output")
    held = TemporaryFolder()
    local = held.path / (PurePosixPath(path).name or "output")
    yield local
    with answering(address, OutputError):
        if local.is_dir() is not is_folder and old:
            raise UsageError(f"{shown(address)} is no such output", remedy="name another output")
        _bring(system, _files(local, path), address, force=force, old=old if is_folder else [])


def _files(local: Path, path: str) -> Mapping[str, Path]:
    """Return what is to be written by where it goes, what says that all is there last."""
    if not local.is_dir():
        return {path: local}
    files = sorted((each for each in local.rglob("*") if each.is_file()), key=lambda each: (each.name == META, each))
    return {f"{path.rstrip('/')}/{each.relative_to(local).as_posix()}": each for each in files}


def _bring(system: Any, files: Mapping[str, Path], address: str, *, force: bool, old: list[str]) -> None:
    """Write all files, or none: a store has no folder that takes another's name, so what is begun is taken back."""
    if old:
        system.rm(old)
    sent: list[str] = []
    try:
        for where, file in files.items():
            system.put_file(str(file), where, mode="overwrite" if force else "create")
            sent.append(where)
    except BaseException as error:
        if len(files) > 1 and sent:
            with contextlib.suppress(Exception):
                system.rm(sent)
        if isinstance(error, FileExistsError):
            raise _exists(address) from None
        raise


def _exists(address: str) -> UsageError:
    return UsageError(f"{shown(address)} exists", remedy="add --force to overwrite, or name another output with -o")
