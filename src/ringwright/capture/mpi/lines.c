/* The calls file of this process: lines of JSON, each handed to the kernel by one write() the moment it is known.
 *
 * Nothing here may disturb the job. The descriptor lies high, out of the way of programs that close all and count on low numbers;
 * the system call is made directly, since write() of the C library is a point where a thread may be cancelled; a limit on the
 * size of files is kept by us, since the kernel's answer is a signal that kills; errno is left as it was. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int file = -1;
static _Atomic int64_t room = INT64_MAX; /* bytes left under the limit on the size of files */
static _Atomic bool torn;                /* the last line was written in part: the next begins on a fresh line */
static _Atomic bool ended;
static _Atomic int64_t losses[LOST_KINDS];
static const char *const reasons[LOST_KINDS] = {
    "lines that could not be written (disk full, limit on the size of files)",
    "calls not followed, no memory",
    "calls on an inter-communicator, not recorded",
    "calls that MPI refused, recorded as complete",
    "requests freed before they were known to be complete",
    "one-sided transfers (put, get, accumulate), counted and not recorded",
    "windows of one-sided communication, counted and not recorded",
};

int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* -------------------------------------------------------------------------------------------------------- putting together */
static void put(struct line *line, const char *text, size_t bytes) {
  if (line->end - line->at < (ptrdiff_t)bytes) {
    line->end = line->at; /* too long: nothing more is taken, and line_end drops it */
    return;
  }
  memcpy(line->at, text, bytes);
  line->at += bytes;
}

void line_begin(struct line *line, char kind) {
  line->at = line->text, line->end = line->text + sizeof line->text - 2;
  char start[] = {'[', '"', kind, '"'};
  put(line, start, sizeof start);
}

static void digits(struct line *line, int64_t value) {
  char text[24], *at = text + sizeof text;
  uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) *--at = '-';
  put(line, at, (size_t)(text + sizeof text - at));
}

void line_int(struct line *line, int64_t value) {
  if (value == ABSENT) return line_null(line);
  put(line, ",", 1);
  digits(line, value);
}

void line_null(struct line *line) { put(line, ",null", 5); }

void line_text(struct line *line, const char *text) {
  put(line, ",\"", 2);
  put(line, text, strlen(text));
  put(line, "\"", 1);
}

void line_end(struct line *line) {
  if (line->end == line->at) return lost(LOST_MEMORY);
  *line->at++ = ']', *line->at++ = '\n';
  whole_line(line->text, (size_t)(line->at - line->text));
}

size_t escaped(char *into, size_t room_bytes, const char *text, size_t bytes) {
  size_t n = 0;
  for (size_t i = 0; i < bytes && n + 8 < room_bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\') into[n++] = '\\', into[n++] = (char)c;
    else if (c < 0x20 || c >= 0x7f) n += (size_t)sprintf(into + n, "\\u%04x", c); /* bytes beyond ASCII as if Latin-1 */
    else into[n++] = (char)c;
  }
  into[n] = 0;
  return n;
}

/* ----------------------------------------------------------------------------------------------------------------- writing */
static void missed(void) { atomic_fetch_add(&losses[LOST_WRITES], 1); }

void whole_line(const char *text, size_t bytes) {
  int fd = atomic_load_explicit(&file, memory_order_relaxed), before = errno;
  if (fd < 0) return;
  if (atomic_load_explicit(&room, memory_order_relaxed) != INT64_MAX && atomic_fetch_sub(&room, (int64_t)bytes) < (int64_t)bytes + 1)
    return atomic_fetch_add(&room, (int64_t)bytes), missed();
  if (atomic_load_explicit(&torn, memory_order_relaxed) && atomic_exchange(&torn, false) && syscall(SYS_write, fd, "\n", 1) != 1)
    atomic_store(&torn, true);
  long done;
  do done = syscall(SYS_write, fd, text, bytes);
  while (done < 0 && errno == EINTR);
  if (done != (long)bytes) {
    if (done > 0) atomic_store(&torn, true);
    missed();
  }
  errno = before;
}

static void say_loss(enum loss kind, int64_t count) {
  struct line line;
  line_begin(&line, 'd');
  line_text(&line, reasons[kind]);
  line_int(&line, count);
  line_end(&line);
}

void lost(enum loss kind) { /* said at each power of two and at the end */
  int64_t count = atomic_fetch_add(&losses[kind], 1) + 1;
  if (!(count & (count - 1))) say_loss(kind, count);
}

/* -------------------------------------------------------------------------------------------------------- beginning and end */
static void keep_limit(int fd) {
  struct rlimit limit;
  off_t size = lseek(fd, 0, SEEK_END);
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size >= 0)
    atomic_store(&room, (int64_t)limit.rlim_cur - size);
}

static int lifted(int fd) {
  struct rlimit limit;
  int low = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 256 && limit.rlim_cur < 4096 ? (int)limit.rlim_cur - 64 : 1000;
  int high = fcntl(fd, F_DUPFD_CLOEXEC, low);
  if (high < 0) return fd;
  close(fd);
  return high;
}

bool file_open(const char *folder, const char *header, size_t bytes) {
  char host[256] = "host", path[4352];
  gethostname(host, sizeof host - 1);
  int fd = -1;
  /* A name that is taken (another recorder of this process, equal process numbers in containers) gets a number behind it. */
  for (int again = 0; again < 100 && fd < 0; again++) {
    char number[16] = "";
    if (again) snprintf(number, sizeof number, "-%d", again);
    int length = snprintf(path, sizeof path, "%s/calls.%s.%d%s.jsonl", folder, host, (int)getpid(), number);
    if (length < 0 || length >= (int)sizeof path) return false;
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) return false;
  }
  if (fd < 0) return false;
  fd = lifted(fd);
  keep_limit(fd);
  atomic_store(&file, fd);
  whole_line(header, bytes);
  return true;
}

void file_end(const char *how, bool has_code, int64_t code) {
  if (atomic_load(&file) < 0 || atomic_exchange(&ended, true)) return;
  for (int kind = 0; kind < LOST_KINDS; kind++)
    if (atomic_load(&losses[kind])) say_loss((enum loss)kind, atomic_load(&losses[kind]));
  struct line line;
  line_begin(&line, 'x');
  line_text(&line, how);
  line_int(&line, now_ns());
  line_int(&line, has_code ? code : ABSENT);
  line_end(&line);
}

void file_forget(void) {
  int fd = atomic_exchange(&file, -1);
  if (fd >= 0) close(fd);
}
