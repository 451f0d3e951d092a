"""A program in the kernel by way of libbpf's C library: loaded, its maps read and written, on ports, and tried on one frame.

Everything hangs on descriptors of this process: the kernel takes program, maps and ports back when it ends, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Mapping

from ringwright.execute.switched.xdp.compiling import no_xdp
from ringwright.ground.errors import InfeasibleError

LIBRARY = "libbpf.so.1"
XDP, IN_DRIVER = 37, 1 << 2  # linux/bpf.h: the attach type; if_link.h: by the device's own driver or not at all
MOST_FRAME_BYTES = 1 << 11
MOST_WORDS_BYTES = 1 << 16

_Print = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_WARNING = 0


class _LinkOptions(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("zero", ctypes.c_uint32))


class _RunOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("size_in", ctypes.c_uint32),
        ("size_out", ctypes.c_uint32),
        ("context_in", ctypes.c_void_p),
        ("context_out", ctypes.c_void_p),
        ("context_size_in", ctypes.c_uint32),
        ("context_size_out", ctypes.c_uint32),
        ("verdict", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration_ns", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


class LoadedProgram:
    """An object file's programs and maps in the kernel. ``most``: entries of maps that are sized only now.

    Raises InfeasibleError, in the kernel's words, where it does not take them.
    """

    def __init__(self, image: bytes, most: Mapping[str, int]) -> None:
        self._library = _library()
        self._words: list[str] = []
        heard = _Print(self._hear)
        self._library.libbpf_set_print(heard)
        self._links: list[int] = []
        self._object: int | None = None
        try:
            self._object = self._library.bpf_object__open_mem(image, len(image), None)
            if not self._object:
                raise no_xdp("the program cannot be read", where=self._said(), remedy=f"another {LIBRARY}")
            for name, entries in most.items():
                self._library.bpf_map__set_max_entries(self._map(name), entries)
            failed = self._library.bpf_object__load(ctypes.c_void_p(self._object))
            if failed:
                raise refusal(-failed, self._said())
        except BaseException:
            self.close()
            raise
        finally:
            self._library.libbpf_set_print(None)

    def _hear(self, level: int, words: bytes, arguments: int) -> int:
        if level == _WARNING:
            text = ctypes.create_string_buffer(MOST_WORDS_BYTES)
            ctypes.CDLL(None).vsnprintf(text, ctypes.c_size_t(len(text)), words, ctypes.c_void_p(arguments))
            self._words.append(text.value.decode(errors="replace"))
        return 0

    def _said(self) -> str:
        lines = [line.strip() for line in "".join(self._words).splitlines()]
        return " / ".join(line.removeprefix("libbpf: ") for line in lines if line and not line.startswith("--"))[-400:]

    def _map(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._library.bpf_object__find_map_by_name(ctypes.c_void_p(self._object), name.encode()))

    def map(self, name: str) -> int:
        """Return a map's descriptor."""
        return int(self._library.bpf_map__fd(self._map(name)))

    def value_bytes(self, name: str) -> int:
        """Return how large the values of a map are."""
        return int(self._library.bpf_map__value_size(self._map(name)))

    def program(self, name: str) -> int:
        """Return a program's descriptor."""
        one = self._library.bpf_object__find_program_by_name(ctypes.c_void_p(self._object), name.encode())
        return int(self._library.bpf_program__fd(ctypes.c_void_p(one)))

    def write(self, table: int, key: bytes, value: bytes) -> None:
        """Write one entry of a map; OSError as of the kernel."""
        _checked(self._library.bpf_map_update_elem(table, key, value, ctypes.c_uint64(0)))

    def read(self, table: int, key: bytes, size: int) -> bytes | None:
        """Return one entry of a map, or None."""
        value = ctypes.create_string_buffer(size)
        return None if self._library.bpf_map_lookup_elem(table, key, value) else value.raw

    def forget(self, table: int, key: bytes) -> None:
        """Remove one entry of a map, if it is there."""
        self._library.bpf_map_delete_elem(table, key)

    def cores(self) -> int:
        """Return how many values a map has that each core has one of."""
        return int(self._library.libbpf_num_possible_cpus())

    def attach(self, program: int, port: int, name: str) -> None:
        """Put a program on a port, by its number; InfeasibleError where its driver has no XDP, or it has a program already."""
        options = _LinkOptions(ctypes.sizeof(_LinkOptions), IN_DRIVER, 0)
        link = self._library.bpf_link_create(program, port, XDP, ctypes.byref(options))
        if link < 0:
            if -link == errno.EBUSY:
                raise no_xdp("another program is on this port", where=name, remedy=f"ip link set {name} xdp off")
            raise no_xdp(f"this port takes no program: {os.strerror(-link)}", where=name, remedy="--xdp PORT,PORT")
        self._links.append(link)

    def run(self, program: int, frame: bytes) -> tuple[int, bytes]:
        """Return the verdict of a program on a frame that no port saw, and what became of the frame."""
        out = ctypes.create_string_buffer(MOST_FRAME_BYTES)
        options = _RunOptions(size=ctypes.sizeof(_RunOptions), repeat=1)
        given = ctypes.create_string_buffer(frame, len(frame))
        options.data_in, options.size_in = ctypes.addressof(given), len(frame)
        options.data_out, options.size_out = ctypes.addressof(out), len(out)
        _checked(self._library.bpf_prog_test_run_opts(program, ctypes.byref(options)))
        return options.verdict, out.raw[: options.size_out]

    def close(self) -> None:
        """Take everything back; once more changes nothing."""
        while self._links:
            with contextlib.suppress(OSError):
                os.close(self._links.pop())
        if self._object:
            self._library.bpf_object__close(ctypes.c_void_p(self._object))
        self._object = None


def refusal(number: int, said: str) -> InfeasibleError:
    """Return the error of a kernel that does not load a program, by the number that it gave and what it said."""
    words = os.strerror(number)
    if number in (errno.EPERM, errno.EACCES):
        why = f"the kernel does not let this user load a program ({words})"
        return no_xdp(why, remedy="as root, with CAP_BPF and CAP_NET_ADMIN of the machine itself")
    if number in (errno.ENOSYS, errno.EOPNOTSUPP):
        return no_xdp(f"this kernel loads no programs ({words})", remedy="a kernel with CONFIG_BPF_SYSCALL and _JIT")
    return no_xdp(f"the kernel refuses the program ({words})", where=said, remedy="a newer kernel: 6.18 takes it")


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError:
        raise no_xdp(
            f"{LIBRARY}, which hands programs to the kernel, is missing", remedy="apt-get install libbpf1"
        ) from None
    for name in ("bpf_object__open_mem", "bpf_object__find_map_by_name", "bpf_object__find_program_by_name"):
        getattr(library, name).restype = ctypes.c_void_p
    library.bpf_object__open_mem.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
    return library


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
