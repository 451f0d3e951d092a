"""The recordings of a running job, looked at again and again: each look reads what has been added since the last.

Kinds that grow by lines or blocks go on where they stopped (``kinds``: ``GROWING``). Every other kind, and what is compressed or
in an archive, is read anew when it has changed. A file that was replaced, cut short or written anew lets its whole kind begin
anew: what has been joined cannot be taken apart. A file that was renamed goes on; one that is gone stays counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.formats.sources import read_each
from ringwright.formats.sources.detect import PEEK_BYTES, detect
from ringwright.formats.sources.gate.inputs import CHUNK_BYTES, chunks, files, find, is_plain, sources_in
from ringwright.formats.sources.gate.rank_progress import Growing, Reached
from ringwright.formats.sources.gate.tails import FileState, Tail, state_of
from ringwright.formats.sources.kinds import kinds
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringwright.model.trace import Trace

MOST_LOOK_BYTES = 256 << 20  # read by one look, so that a large file shows something before it is read to its end
_STDIN = "-"


@dataclass
class FollowedFile:
    """A file of the job: what it is, and how far it has been read."""

    name: str
    path: Path | None
    state: FileState | None
    sources: list[Source]
    told: list[tuple[str, ...]] = field(default_factory=list)  # the kinds of each source
    looked_bytes: int = -1  # of its beginning, when its kind was told
    tail: Tail | None = None  # None: it cannot be continued
    fed: set[str] = field(default_factory=set)  # sources of what cannot be continued that their kinds have got
    is_gone: bool = False

    @property
    def kind(self) -> str:
        """What it is; empty for no recording that is known."""
        return next((kinds[0] for kinds in self.told if kinds), "")


@dataclass(frozen=True)
class Looked:
    """What a look gave: the traces of each kind, None where nothing has changed; what happened to files, in sentences."""

    parts: list[Trace] | None
    events: list[str] = field(default_factory=list)
    read_bytes: int = 0
    left_bytes: int = 0


class GrowingJob:
    """The recordings below some paths while they grow.

    Parameters
    ----------
    paths
        Files, folders, archives, globs or ``-``; what does not exist yet is waited for.
    most_bytes
        What a look reads at most of all files together.
    """

    def __init__(self, paths: Sequence[str], most_bytes: int = MOST_LOOK_BYTES) -> None:
        self._paths = [*paths]
        self._most = most_bytes
        self.files: dict[str, FollowedFile] = {}  # by the name that the file has now
        self._growing: dict[str, Growing] = {}
        self._whole: dict[str, tuple[object, Trace]] = {}  # kinds that are read anew: of which states of files, what
        self._events: list[str] = []
        self._said: set[str] = set()
        self._waits_for_first = True
        self._turn: dict[str, int] = {}  # in which a reader that reads them all would read the files

    @property
    def reached(self) -> list[Reached]:
        """How far the ranks have come, of the first kind that tells it at the last look."""
        return next((each.reached for each in self._growing.values() if each.reached), [])

    def look(self, *, is_end: bool = False) -> Looked:
        """Read what is new; InputError where there is nothing to read yet.

        ``is_end``: nothing more comes, so once all is read a line that has not ended is taken as it stands.
        """
        self._events = []
        changed = self._list()
        anew = self._kinds_to_restart()
        for kind in sorted(anew):
            self._restart(kind)
        read_bytes = self._feed()
        left = self._left_bytes() if read_bytes >= self._most else 0
        if is_end and not left:
            self._finish()
        if not (changed or anew or read_bytes or self._waits_for_first):
            return Looked(None, self._events, 0, left)
        parts = read_each([*self._told()], self._read_kind)
        self._waits_for_first = False
        return Looked(parts, self._events, read_bytes, left)

    def _told(self) -> Iterator[tuple[Source, tuple[str, ...]]]:
        """Yield the sources with their kinds; of files that are gone, those of which something is kept."""
        for each in self._ordered():
            for source, told in zip(each.sources, each.told, strict=True):
                if not each.is_gone or (told and told[0] in self._growing):
                    yield source, told[:1] if each.is_gone else told

    def _left_bytes(self) -> int:
        """Return what a look that has read as much as it may leaves for the next."""
        return sum(each.tail.left_bytes for each in self.files.values() if each.tail and each.kind in self._growing)

    def _finish(self) -> None:
        """Take the lines that were never ended."""
        for each in self.files.values():
            growing = self._growing.get(each.kind)
            if growing is not None and each.tail is not None and each.tail.is_text and (rest := each.tail.end()):
                growing.take(each.name, [rest])
                self._waits_for_first = True

    # ------------------------------------------------------------------------------------------------ which files there are
    def _list(self) -> bool:
        """Bring the list of files up to date; say whether it, or a file that is read anew, has changed."""
        now = {str(path): state for path in self._named() if (state := state_of(path)) is not None}
        self._turn = {name: number for number, name in enumerate(now)}
        self._rename(now)
        changed = False
        for name, state in now.items():
            try:
                changed |= self._seen(name, state)
            except OSError:
                continue  # gone in this moment: the next look sees it
        for name, each in self.files.items():
            if each.path is not None and name not in now and not each.is_gone:
                each.is_gone = True
                self._events.append(f"{name} is gone: what it said stays counted")
        return changed

    def _named(self) -> list[Path]:
        """Return the files that the paths name; one that was packed where it stood counts once. InputError for none at all."""
        if _STDIN in self._paths and _STDIN not in self.files:
            source = find([_STDIN])[0]
            self.files[_STDIN] = FollowedFile(source.name, None, None, [source])
            self._tell(self.files[_STDIN])
        named, missing = [], None
        for path in self._paths:
            try:
                named += files(path) if path != _STDIN else []
            except InputError as error:
                missing = error
        if missing is not None and not (named or self.files):
            raise missing
        gone = {name for name, each in self.files.items() if each.path is not None and not each.path.exists()}
        return [file for file in named if is_plain(file) or str(file.with_suffix("")) not in gone]

    def _rename(self, now: dict[str, FileState]) -> None:
        """Go on with files that have another name than at the last look."""
        moved = self._moved(now)
        if not moved:
            return
        self._events += [f"{old} is now {new}" for old, new in moved.items()]
        for growing in self._growing.values():
            growing.rename(moved)
        kept = {name: each for name, each in self.files.items() if name not in moved and name not in moved.values()}
        for old, new in moved.items():
            each = self.files[old]
            path = Path(new)
            each.name, each.path, each.sources = new, path, sources_in(path)
            if each.tail is not None:
                each.tail.path = path
            kept[new] = each
        self.files = kept

    def _moved(self, now: dict[str, FileState]) -> dict[str, str]:
        named = {state.identity: name for name, state in now.items()}
        moved: dict[str, str] = {}
        for name, each in self.files.items():
            identity = each.state.identity if each.state is not None else None
            new = named.get(identity) if identity is not None else None
            if each.tail is None or new is None or each.is_gone:
                continue
            if name in now and now[name].identity == identity:
                continue  # it stands where it stood, perhaps under a second name
            if each.tail.is_replaced(now[new], Path(new)) == "":
                moved[name] = new
        return moved

    def _seen(self, name: str, state: FileState) -> bool:
        """Take the state of a file; say whether it counts as changed by itself."""
        known = self.files.get(name)
        if known is not None and (known.tail is not None or known.state == state):
            return self._continued(known, state)
        self.files[name] = self._first_seen(name, state)
        if known is not None:
            self._say_once(f"{name} has changed: it is read anew, as it cannot be continued")
            self._drop(known)
        return True

    def _say_once(self, sentence: str) -> None:
        """Tell what may happen at every look at the first of them."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._events.append(sentence)

    def _first_seen(self, name: str, state: FileState) -> FollowedFile:
        path = Path(name)
        followed = FollowedFile(name, path, state, sources_in(path))
        if is_plain(path):
            followed.tail = Tail(path, state)
        self._tell(followed)
        return followed

    def _continued(self, known: FollowedFile, state: FileState) -> bool:
        """Take the state of a file that was there before; say whether it counts as changed by itself."""
        known.is_gone = False
        if known.tail is None:
            return False
        if why := known.tail.is_replaced(state):
            self._events.append(f"{known.name} was {why}: recordings of its kind are read anew")
            known.state, known.looked_bytes = state, -1
            self._drop(known)
            known.tail.restart(state)
            self._tell(known)
            return True
        has_changed = known.state != state
        known.state = known.tail.state = state
        # What a file is may only show with its next lines; a table of a benchmark may begin anywhere in what is looked at.
        if has_changed and known.looked_bytes < PEEK_BYTES:
            self._tell(known)
        return has_changed and known.kind not in self._growing

    def _tell(self, followed: FollowedFile) -> None:
        """Ask what a file is, of as much of its beginning as there is."""
        before, followed.told = followed.told, [detect(source) for source in followed.sources]
        followed.looked_bytes = min(followed.state.size, PEEK_BYTES) if followed.state is not None else PEEK_BYTES
        if any(before) and [kinds[:1] for kinds in before] != [kinds[:1] for kinds in followed.told]:
            for kind in {kind for kinds in before for kind in kinds}:
                self._drop_kind(kind)
            if followed.tail is not None and followed.state is not None:
                followed.tail.restart(followed.state)

    # ------------------------------------------------------------------------------------------- kinds that begin anew
    def _drop(self, followed: FollowedFile) -> None:
        for kind in {kind for told in followed.told for kind in told}:
            self._drop_kind(kind)

    def _drop_kind(self, kind: str) -> None:
        """Forget what a kind has read: at this look it begins anew."""
        self._growing.pop(kind, None)
        self._whole.pop(kind, None)

    def _kinds_to_restart(self) -> set[str]:
        told = {kinds[0] for each in self.files.values() for kinds in each.told if kinds}
        return {kind for kind in told if kind not in self._growing and kinds()[kind].grows is not None}

    def _restart(self, kind: str) -> None:
        """Begin a kind: all its files from their beginning."""
        grows = kinds()[kind].grows
        if grows is None:
            return
        self._growing[kind] = grows()
        for each in self.files.values():
            each.fed -= {source.name for source, told in zip(each.sources, each.told, strict=True) if kind in told[:1]}
            if each.kind == kind and each.tail is not None and each.state is not None:
                each.tail.restart(each.state)

    # --------------------------------------------------------------------------------------------------------- what is new
    def _ordered(self) -> list[FollowedFile]:
        """Return the files in the order in which a reader that reads them all would."""
        return sorted(self.files.values(), key=lambda each: self._turn.get(each.name, -1))

    def _feed(self) -> int:
        """Give each growing kind what is new; return how many bytes that was."""
        total = 0
        for each in self._ordered():
            if each.is_gone:
                continue
            if each.tail is None:
                total += self._feed_whole(each)
            elif (growing := self._growing.get(each.kind)) is not None and each.tail.left_bytes and total < self._most:
                total += self._feed_new(growing, each.name, each.tail, self._most - total)
        return total

    @staticmethod
    def _feed_new(growing: Growing, name: str, tail: Tail, most: int) -> int:
        begin = growing.head_bytes
        if tail.state.size < begin:
            return 0  # the header is not there yet
        if begin:
            growing.head(name, tail.head(begin))
            tail.begin, tail.is_text, tail.offset = begin, False, max(tail.offset, begin)
        before = tail.offset
        growing.take(name, tail.pieces(most))
        losses, tail.losses = tail.losses, []
        for reason, at in losses:
            growing.lose(name, reason, at)
        return tail.offset - before

    def _feed_whole(self, each: FollowedFile) -> int:
        """Give their kinds what cannot be continued, once."""
        total = 0
        for source, told in zip(each.sources, each.told, strict=True):
            growing = self._growing.get(told[0]) if told else None
            if growing is None or source.name in each.fed:
                continue
            each.fed.add(source.name)
            if growing.head_bytes:
                growing.head(source.name, source.head(growing.head_bytes))
            growing.take(source.name, self._content(source, growing.head_bytes))
            for reason, at in source.losses:
                growing.lose(source.name, reason, at)
            total += each.state.size if each.state is not None else 1
        return total

    @staticmethod
    def _content(source: Source, begin: int) -> Iterator[bytes]:
        if not begin:
            for chunk in chunks(source):
                yield chunk.data
            return
        with source.open() as stream:
            stream.read(begin)
            while block := stream.read(CHUNK_BYTES):
                yield block

    def _read_kind(self, kind: str, sources: list[Source]) -> Trace:
        names = [source.name for source in sources]
        growing = self._growing.get(kind)
        if growing is not None:
            return growing.trace(names)
        states = tuple(each.state for each in self._ordered() if any(source.name in names for source in each.sources))
        known = self._whole.get(kind)
        if known is not None and known[0] == states:
            return known[1]
        if known is not None:
            self._say_once(f"{kind}: read anew whenever a file changes, as such files cannot be continued")
        trace = kinds()[kind].read(sources, **({"keep_rows": 0} if kind == "nccl-log" else {}))
        self._whole[kind] = (states, trace)
        return trace
