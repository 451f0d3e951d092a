"""An interpreter of pickled plain data: containers, text, numbers. It has no opcode that could name or call anything.

Dumps come from elsewhere, so the standard library's reader is never used. Opcodes of protocols 0 to 5 that build plain
values are known; every other one is refused with its name and byte offset. Size, open containers, memo and the length of
numbers are bounded, and keys are text or few, so that time and memory stay linear in the bytes read. A memo may make the
result share parts, even with itself: who reads it must not walk it without bounds.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

from ringwright.native import plain

MOST_BYTES = 128 << 20
MOST_CONTAINERS = 4 << 20
MOST_OPEN = 100  # containers inside one another
MOST_MEMO = 8 << 20
MOST_PLAIN_KEYS = 10_000  # keys that are no text: their hashes can be chosen to collide
MOST_NUMBER_BYTES = 64
MOST_DIGITS = 150
MOST_PROTOCOL = 5

REFUSED = {
    "c": "GLOBAL",
    "R": "REDUCE",
    "b": "BUILD",
    "i": "INST",
    "o": "OBJ",
    "\x81": "NEWOBJ",
    "\x92": "NEWOBJ_EX",
    "\x93": "STACK_GLOBAL",
    "P": "PERSID",
    "Q": "BINPERSID",
    "\x82": "EXT1",
    "\x83": "EXT2",
    "\x84": "EXT4",
    "\x97": "NEXT_BUFFER",
    "\x98": "READONLY_BUFFER",
}
_STOP = ord(".")


class RefusedError(Exception):
    """The bytes ask for more than plain data, or are damaged: what, and the byte offset of the opcode.

    ``kept`` is what had been built when the bytes ended too early, else None.
    """

    def __init__(self, what: str, at: int = -1, *, kept: Any = None) -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.kept = kept


class _CutError(RefusedError):
    """The bytes end within a value: what is open may be closed."""


class _Machine:
    """The stack, the marks on it, the memo, and where the next byte is."""

    __slots__ = ("at", "containers", "data", "marks", "memo", "plain_keys", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0
        self.plain_keys = 0

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        end = self.at + count
        if end > len(self.data):
            raise _CutError("the dump ends within a value")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def line(self) -> bytes:
        """Return the text argument of an opcode of protocol 0."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _CutError("the dump ends within a line")
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def new(self, container: Any) -> None:
        self.containers += 1
        if self.containers > MOST_CONTAINERS:
            raise RefusedError(f"more than {MOST_CONTAINERS:,} containers")
        self.stack.append(container)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise RefusedError("takes a value where there is none")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise RefusedError("closes a container that was not opened")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def top(self, kind: type) -> Any:
        """Return the container on top of the stack, which must be of ``kind``."""
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) <= floor or not isinstance(self.stack[-1], kind):
            raise RefusedError(f"adds to what is no {kind.__name__}")
        return self.stack[-1]

    def key(self, key: Any) -> Any:
        if type(key) is not str:
            if not isinstance(key, int | float | bytes | None):
                raise RefusedError(f"a {type(key).__name__} as key")
            self.plain_keys += 1
            if self.plain_keys > MOST_PLAIN_KEYS:
                raise RefusedError(f"more than {MOST_PLAIN_KEYS:,} keys that are no text")
        return key

    def fill(self, target: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            raise RefusedError("a key without a value")
        for index in range(0, len(items), 2):
            target[self.key(items[index])] = items[index + 1]

    def remember(self, slot: int) -> None:
        if len(self.memo) >= MOST_MEMO:
            raise RefusedError(f"more than {MOST_MEMO:,} memo entries")
        if not self.stack:
            raise RefusedError("remembers a value where there is none")
        self.memo[slot] = self.stack[-1]

    def recall(self, slot: int) -> None:
        if slot not in self.memo:
            raise RefusedError(f"recalls memo entry {slot}, which was not stored")
        self.stack.append(self.memo[slot])


def load(data: bytes) -> Any:
    """Return the plain value that the opcodes in ``data`` build; raise RefusedError for all else.

    The compiled twin reads what torch writes; whatever it does not answer is read again here.
    """
    if len(data) > MOST_BYTES:
        raise RefusedError(f"larger than {MOST_BYTES >> 20} MiB", 0)
    if plain is not None:
        value = plain.load(data)
        if value is not NotImplemented:
            return value
    return interpret(data)


def interpret(data: bytes) -> Any:
    """Return the value as ``load`` does, in Python alone."""
    machine = _Machine(data)
    start = 0
    try:
        while True:
            start = machine.at
            code = data[start]
            machine.at = start + 1
            if code == _STOP:
                return machine.pop()
            _TABLE[code](machine)
    except IndexError:
        raise RefusedError("the dump ends without STOP", len(data), kept=_closed(machine)) from None
    except _CutError as error:
        raise RefusedError(error.what, start, kept=_closed(machine)) from None
    except RefusedError as error:
        raise RefusedError(error.what, start if error.at < 0 else error.at) from None
    except (ValueError, OverflowError, struct.error) as error:
        raise RefusedError(f"a damaged value: {error}", start) from None


def _closed(machine: _Machine) -> Any:
    """Close all that is open and return the outermost value: what was read before the bytes ended."""
    while machine.marks:
        items = machine.since_mark()
        target = machine.stack[-1] if machine.stack else None
        try:
            if isinstance(target, dict):
                machine.fill(target, items[: len(items) // 2 * 2])
            elif isinstance(target, list):
                target.extend(items)
        except RefusedError:
            return None
    return machine.stack[0] if machine.stack else None


def _refuse(name: str) -> Callable[[_Machine], None]:
    def refuse(machine: _Machine) -> None:
        raise RefusedError(f"opcode {name} is refused: it is no plain data")

    return refuse


def _mark(machine: _Machine) -> None:
    if len(machine.marks) >= MOST_OPEN:
        raise RefusedError(f"more than {MOST_OPEN} containers inside one another")
    machine.marks.append(len(machine.stack))


def _pop(machine: _Machine) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop()


def _dup(machine: _Machine) -> None:
    value = machine.pop()
    machine.stack += (value, value)


def _int(machine: _Machine) -> None:
    text = machine.line()
    if text in (b"00", b"01"):
        machine.stack.append(text == b"01")
    else:
        machine.stack.append(_digits(text))


def _digits(text: bytes) -> int:
    if len(text) > MOST_DIGITS:
        raise RefusedError(f"a number of {len(text):,} digits")
    return int(text.rstrip(b"Ll"))


def _long_bytes(size_bytes: int) -> Callable[[_Machine], None]:
    def push(machine: _Machine) -> None:
        size = machine.number(size_bytes)
        if size > MOST_NUMBER_BYTES:
            raise RefusedError(f"a number of {size:,} bytes")
        machine.stack.append(int.from_bytes(machine.take(size), "little", signed=True))

    return push


def _float(machine: _Machine) -> None:
    text = machine.line()
    if len(text) > MOST_DIGITS:
        raise RefusedError(f"a number of {len(text):,} digits")
    machine.stack.append(float(text))


def _text(size_bytes: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.number(size_bytes)).decode("utf-8", "replace"))


def _bytes(size_bytes: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.number(size_bytes)))


def _quoted(machine: _Machine) -> None:
    text = machine.line().strip()
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
        raise RefusedError("a string without quotes")
    machine.stack.append(codecs.escape_decode(text[1:-1])[0].decode("utf-8", "replace"))


def _unicode(machine: _Machine) -> None:
    text = machine.line().decode("raw_unicode_escape")
    machine.stack.append(text.encode("utf-8", "replace").decode())


def _append(machine: _Machine) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _appends(machine: _Machine) -> None:
    items = machine.since_mark()
    machine.top(list).extend(items)


def _setitem(machine: _Machine) -> None:
    value = machine.pop()
    key = machine.pop()
    machine.fill(machine.top(dict), [key, value])


def _setitems(machine: _Machine) -> None:
    items = machine.since_mark()
    machine.fill(machine.top(dict), items)


def _dict(machine: _Machine) -> None:
    items = machine.since_mark()
    built: dict[Any, Any] = {}
    machine.fill(built, items)
    machine.new(built)


def _additems(machine: _Machine) -> None:
    items = machine.since_mark()
    machine.top(set).update(machine.key(item) for item in items)


def _frozenset(machine: _Machine) -> None:
    items = machine.since_mark()
    machine.new(frozenset(machine.key(item) for item in items))


def _tuple(count: int) -> Callable[[_Machine], None]:
    def push(machine: _Machine) -> None:
        items = [machine.pop() for _ in range(count)]
        machine.new(tuple(reversed(items)))

    return push


def _slot(machine: _Machine) -> int:
    return _digits(machine.line())


def _proto(machine: _Machine) -> None:
    version = machine.number(1)
    if version > MOST_PROTOCOL:
        raise RefusedError(f"protocol {version}")


def _frame(machine: _Machine) -> None:
    size = machine.number(8)
    if size > len(machine.data) - machine.at:
        raise RefusedError(f"a frame of {size:,} bytes, beyond the end of the dump")


def _push(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value)


def _unsigned(size: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.number(size))


_HANDLERS: dict[str, Callable[[_Machine], None]] = {
    "(": _mark,
    "0": _pop,
    "1": lambda machine: machine.since_mark().clear(),
    "2": _dup,
    "F": _float,
    "G": lambda machine: machine.stack.append(struct.unpack(">d", machine.take(8))[0]),
    "I": _int,
    "J": lambda machine: machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True)),
    "K": _unsigned(1),
    "L": lambda machine: machine.stack.append(_digits(machine.line())),
    "M": _unsigned(2),
    "N": _push(None),
    "S": _quoted,
    "T": _text(4),
    "U": _text(1),
    "V": _unicode,
    "X": _text(4),
    "\x8c": _text(1),
    "\x8d": _text(8),
    "B": _bytes(4),
    "C": _bytes(1),
    "\x8e": _bytes(8),
    "\x96": _bytes(8),
    "\x8a": _long_bytes(1),
    "\x8b": _long_bytes(4),
    "\x88": _push(True),
    "\x89": _push(False),
    "]": lambda machine: machine.new([]),
    "a": _append,
    "e": _appends,
    "l": lambda machine: machine.new(machine.since_mark()),
    ")": lambda machine: machine.new(()),
    "t": lambda machine: machine.new(tuple(machine.since_mark())),
    "\x85": _tuple(1),
    "\x86": _tuple(2),
    "\x87": _tuple(3),
    "}": lambda machine: machine.new({}),
    "d": _dict,
    "s": _setitem,
    "u": _setitems,
    "\x8f": lambda machine: machine.new(set()),
    "\x90": _additems,
    "\x91": _frozenset,
    "g": lambda machine: machine.recall(_slot(machine)),
    "h": lambda machine: machine.recall(machine.number(1)),
    "j": lambda machine: machine.recall(machine.number(4)),
    "p": lambda machine: machine.remember(_slot(machine)),
    "q": lambda machine: machine.remember(machine.number(1)),
    "r": lambda machine: machine.remember(machine.number(4)),
    "\x94": lambda machine: machine.remember(len(machine.memo)),
    "\x80": _proto,
    "\x95": _frame,
} | {opcode: _refuse(name) for opcode, name in REFUSED.items()}
_TABLE = [_HANDLERS.get(chr(code), _refuse(f"{code:#04x}")) for code in range(256)]
