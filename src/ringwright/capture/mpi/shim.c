/* The MPI shim of Ringwright: beginning and end of a recording.
 *
 * LD_PRELOAD=libringwright-mpi.so RINGWRIGHT_CAPTURE=folder mpirun ./program: every process that initializes MPI writes the
 * communication calls of the program into a calls file in that folder. A process without MPI, or without the variable, is left
 * alone, and whatever goes wrong with the recording, the program does not notice. */
#define _GNU_SOURCE
#include "shim.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__thread int inside;

enum { ASLEEP, AWAKE, OFF };
static _Atomic int state = ASLEEP;
static pthread_mutex_t waking = PTHREAD_MUTEX_INITIALIZER;

static void in_child(void) { /* a forked process is not a rank, whatever it inherits */
  atomic_store(&state, OFF);
  file_forget();
}

static void at_exit(int code, void *nothing) {
  (void)nothing;
  if (atomic_load(&state) == AWAKE) file_end("exit", true, code);
}

static int64_t local_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID",
                                      "PALS_LOCAL_RANKID", "MV2_COMM_WORLD_LOCAL_RANK", "MPICH_LOCALRANKID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *said = getenv(names[i]);
    if (said && *said >= '0' && *said <= '9') return strtoll(said, NULL, 10);
  }
  return -1;
}

/* Joins the words of a command in place: the values of options and settings may be secrets, and become a star. */
static size_t without_values(char *text, size_t bytes) {
  size_t to = 0;
  bool is_first = true, is_value = false;
  for (size_t from = 0; from < bytes;) {
    size_t length = strnlen(text + from, bytes - from), next = from + length + 1;
    const char *mark = is_first ? NULL : memchr(text + from, '=', length);
    bool is_option = !is_first && text[from] == '-';
    if (!is_first) text[to++] = ' ';
    if (is_value && !is_option && length) {
      text[to++] = '*';
    } else {
      size_t kept = mark ? (size_t)(mark - (text + from)) + 1 : length;
      memmove(text + to, text + from, kept);
      to += kept;
      if (mark && kept < length) text[to++] = '*';
    }
    is_value = is_option && !mark;
    is_first = false;
    from = next;
  }
  return to;
}

static size_t command_line(char *into, size_t room) {
  char text[1000];
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text);
  if (fd >= 0) close(fd);
  while (bytes > 0 && !text[bytes - 1]) bytes--;
  size_t used = bytes > 0 ? without_values(text, (size_t)bytes) : 0;
  return escaped(into, room, text, used);
}

/* "Open MPI 5.0.11" out of "Open MPI v5.0.11, package: ...", "MPICH 5.0.2" out of "MPICH Version:      5.0.2". */
static void short_version(char *text) {
  char *to = text;
  text[strcspn(text, ",\n")] = 0;
  for (char *from = text; *from; from++) {
    if (!strncmp(from, "Version:", 8)) from += 8;
    if ((*from == ' ' || *from == '\t') && (to == text || to[-1] == ' ')) continue;
    if (*from == 'v' && to != text && to[-1] == ' ' && from[1] >= '0' && from[1] <= '9') continue;
    *to++ = *from == '\t' ? ' ' : *from;
    if (!*from) break;
  }
  while (to > text && to[-1] == ' ') to--;
  *to = 0;
}

static bool begin(const char *folder) {
  static char version[8192]; /* under the lock; the largest that a library may ask for */
  char header[16384], program[6100], library_name[1024], host[256] = "host", host_name[1600], local[24] = "null";
  int rank = 0, world = 0, length = 0;
  struct timespec wall;
  if (ask.Comm_rank(library.comm_world, &rank) || ask.Comm_size(library.comm_world, &world)) return false;
  ask.Get_library_version(version, &length);
  short_version(version);
  escaped(library_name, sizeof library_name, version, strlen(version));
  command_line(program, sizeof program);
  gethostname(host, sizeof host - 1);
  escaped(host_name, sizeof host_name, host, strlen(host));
  if (local_rank() >= 0) snprintf(local, sizeof local, "%lld", (long long)local_rank());
  clock_gettime(CLOCK_REALTIME, &wall);
  int bytes = snprintf(header, sizeof header,
                       "{\"ringwright\":\"calls/1\",\"source\":\"mpi-shim\",\"host\":\"%s\",\"pid\":%d,\"rank\":%d,\"world\":%d,"
                       "\"local_rank\":%s,\"wall_ns\":%lld,\"clock_ns\":%lld,\"library\":\"%s\",\"program\":\"%s\"}\n",
                       host_name, (int)getpid(), rank, world, local, (long long)wall.tv_sec * 1000000000 + wall.tv_nsec,
                       (long long)now_ns(), library_name, program);
  return bytes > 0 && bytes < (int)sizeof header && file_open(folder, header, (size_t)bytes);
}

/* Between MPI_Init and MPI_Finalize, and not in a program of sessions, which has no world to count ranks in. */
static bool alive(void) {
  int initialized = 0, finalized = 0;
  return library_known() && ask.Initialized(&initialized) == 0 && initialized && ask.Finalized(&finalized) == 0 && !finalized;
}

static bool wake(void) {
  const char *folder = getenv("RINGWRIGHT_CAPTURE");
  if (!folder || !*folder) {
    atomic_store(&state, OFF);
    return false;
  }
  if (!alive()) return false;
  pthread_mutex_lock(&waking);
  if (atomic_load(&state) == ASLEEP) {
    bool good = pthread_atfork(NULL, NULL, in_child) == 0 && begin(folder);
    if (good) on_exit(at_exit, NULL);
    atomic_store(&state, good ? AWAKE : OFF);
  }
  pthread_mutex_unlock(&waking);
  return atomic_load(&state) == AWAKE;
}

bool recording(void) {
  int is = atomic_load_explicit(&state, memory_order_acquire);
  if (LIKELY(is == AWAKE)) return true;
  return is == ASLEEP && wake();
}

/* ----------------------------------------------------------------------------------------------------- first and last calls */
static void *reached(const char *name, bool profiled) { return profiled ? library_function(name) : next_function(name + 1); }

static int initialize(word argc, word argv, bool profiled) {
  int (*real)(word, word) = reached("PMPI_Init", profiled);
  inside++;
  int failed = real ? real(argc, argv) : 15;
  if (!failed && inside == 1) recording();
  inside--;
  return failed;
}

static int initialize_thread(word argc, word argv, word required, word provided, bool profiled) {
  int (*real)(word, word, word, word) = reached("PMPI_Init_thread", profiled);
  inside++;
  int failed = real ? real(argc, argv, required, provided) : 15;
  if (!failed && inside == 1) recording();
  inside--;
  return failed;
}

static int finalize(bool profiled) {
  int (*real)(void) = reached("PMPI_Finalize", profiled);
  inside++;
  int failed = real ? real() : 15;
  if (!failed && inside == 1 && atomic_load(&state) == AWAKE) {
    file_end("finalize", false, 0);
    atomic_store(&state, OFF);
  }
  inside--;
  return failed;
}

static int give_up(word comm, word code, bool profiled, const void *from) {
  int (*real)(word, word) = reached("PMPI_Abort", profiled);
  if (!inside++ && program_calls(from) && atomic_load(&state) == AWAKE) file_end("abort", true, (int)code);
  int failed = real ? real(comm, code) : 15;
  inside--;
  return failed;
}

#define ENDS(prefix, profiled)                                                                                          \
  EXPORT int prefix##Init(word argc, word argv) { return initialize(argc, argv, profiled); }                            \
  EXPORT int prefix##Init_thread(word argc, word argv, word required, word provided) {                                  \
    return initialize_thread(argc, argv, required, provided, profiled);                                                 \
  }                                                                                                                     \
  EXPORT int prefix##Finalize(void) { return finalize(profiled); }                                                      \
  EXPORT int prefix##Abort(word comm, word code) { return give_up(comm, code, profiled, __builtin_return_address(0)); }
ENDS(MPI_, false)
ENDS(PMPI_, true)
