/* Which libmpi the process has loaded, and what its words mean.
 *
 * It may be linked to the program, or loaded later and privately (mpi4py does that), so the names are looked up in the object
 * that defines PMPI_Init rather than in the global scope. Three families of constants exist: Open MPI (handles are addresses of
 * its variables), the common ABI of MPICH, Intel MPI, MVAPICH and Cray MPICH (handles are ints), and the ABI of the MPI 5
 * standard (handles are small numbers in pointers). */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct library library;
struct ask ask;

enum { OPS = 14, SITES = 4096 };
static const char *const op_names[OPS] = {"max", "min", "sum",  "prod",   "land",   "band",    "lor",
                                          "bor", "lxor", "bxor", "minloc", "maxloc", "replace", "no-op"};
static word ops[OPS];

static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static void *loaded;                   /* dlopen's handle of libmpi */
static char loaded_name[4096];         /* its path, as the loader knows it */
static _Atomic int known;              /* 0 not looked or not found, 1 known, 2 of a kind that is not */

static bool defines(const struct dl_phdr_info *object, const void *address) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t low = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && (uintptr_t)address >= low && (uintptr_t)address < low + part->p_memsz) return true;
  }
  return false;
}

struct names {
  int count;
  char text[1024][256];
};

/* Only names are gathered here: the loader's lock is held during the walk and dlopen wants it too. */
static int gather(struct dl_phdr_info *object, size_t size, void *data) {
  (void)size;
  struct names *names = data;
  const char *base = object->dlpi_name ? strrchr(object->dlpi_name, '/') : NULL;
  bool likely = object->dlpi_name && strstr(base ? base : object->dlpi_name, "mpi");
  if (likely && !defines(object, (const void *)gather) && names->count < 1024 && strlen(object->dlpi_name) < 256)
    strcpy(names->text[names->count++], object->dlpi_name);
  return 0;
}

static bool take(const char *name) {
  void *object = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  void *found = object ? dlsym(object, "PMPI_Comm_get_attr") : NULL;
  struct link_map *map = NULL;
  Dl_info where;
  bool own = found && dladdr1(found, &where, (void **)&map, RTLD_DL_LINKMAP) && map && !strcmp(map->l_name, name);
  if (own) {
    loaded = object;
    snprintf(loaded_name, sizeof loaded_name, "%s", name);
    return true;
  }
  if (object) dlclose(object);
  return false;
}

static void look(void) {
  static struct names names; /* under the lock `finding` */
  names.count = 0;
  dl_iterate_phdr(gather, &names);
  for (int i = 0; i < names.count && !loaded; i++) take(names.text[i]);
}

/* Where a variable of the library lies for everyone: in the program itself where that was linked with a copy of it. */
static word variable(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  return (word)(found ? found : dlsym(loaded, name));
}

static bool is_open_mpi(void) {
  struct {
    word *into;
    const char *name;
  } variables[] = {
      {&library.comm_world, "ompi_mpi_comm_world"},     {&library.comm_null, "ompi_mpi_comm_null"},
      {&library.request_null, "ompi_request_null"},     {&library.message_null, "ompi_message_null"},
      {&library.message_no_proc, "ompi_message_no_proc"}, {&library.type_null, "ompi_mpi_datatype_null"},
      {&library.type_byte, "ompi_mpi_byte"},
  };
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (!(*variables[i].into = variable(variables[i].name))) return false;
  for (int i = 0; i < OPS; i++) {
    char name[64];
    snprintf(name, sizeof name, "ompi_mpi_op_%s", i == OPS - 1 ? "no_op" : op_names[i]);
    ops[i] = variable(name);
  }
  library.in_place = 1, library.proc_null = -2, library.any_source = -1;
  library.handle_bytes = 8, library.status_bytes = 24, library.source_at = 0;
  return true;
}

static void is_mpich(void) {
  library.comm_world = 0x44000000, library.comm_null = 0x04000000, library.request_null = 0x2c000000;
  library.message_null = 0x2c000000, library.message_no_proc = 0x6c000000;
  library.type_null = 0x0c000000, library.type_byte = 0x4c00010d;
  for (int i = 0; i < OPS; i++) ops[i] = 0x58000001 + (word)i;
  library.in_place = (word)-1, library.proc_null = -1, library.any_source = -2;
  library.handle_bytes = 4, library.status_bytes = 20, library.source_at = 8, library.status_ignore_is_one = true;
}

static void is_mpi_5(void) {
  static const word numbers[OPS] = {0x23, 0x22, 0x21, 0x24, 0x30, 0x28, 0x31, 0x29, 0x32, 0x2a, 0x38, 0x39, 0x3c, 0x3d};
  memcpy(ops, numbers, sizeof ops);
  library.comm_world = 0x101, library.comm_null = 0x100, library.request_null = 0x180;
  library.message_null = 0x128, library.message_no_proc = 0x129, library.type_null = 0x200, library.type_byte = 0x247;
  library.in_place = 1, library.proc_null = -3, library.any_source = -1;
  library.handle_bytes = 8, library.status_bytes = 32, library.source_at = 0;
}

static bool classify(void) {
  if (dlsym(loaded, "ompi_mpi_comm_world")) return is_open_mpi();
  char said[8192] = "";
  int length = 0;
  if (strstr(loaded_name, "libmpi_abi.so")) return is_mpi_5(), true;
  int (*version)(char *, int *) = (int (*)(char *, int *))dlsym(loaded, "PMPI_Get_library_version");
  if (version) version(said, &length); /* may be called before MPI_Init */
  if (!strstr(said, "MPICH") && !strstr(said, "Intel(R) MPI") && !strstr(said, "MVAPICH")) return false;
  return is_mpich(), true;
}

static int remember_ranges(struct dl_phdr_info *object, size_t size, void *data);

static bool learn(void) {
  dl_iterate_phdr(remember_ranges, NULL);
#define FIND(name, arguments) ask.name = (int(*) arguments)dlsym(loaded, "PMPI_" #name);
#define MISSING(name, arguments) || !ask.name
  ASKED(FIND)
  return !(false ASKED(MISSING)) && classify();
}

bool library_known(void) {
  int is = atomic_load_explicit(&known, memory_order_acquire);
  if (LIKELY(is)) return is == 1;
  pthread_mutex_lock(&finding);
  if (!atomic_load(&known)) {
    if (!loaded) look();
    if (loaded) atomic_store_explicit(&known, learn() ? 1 : 2, memory_order_release);
  }
  pthread_mutex_unlock(&finding);
  return atomic_load(&known) == 1;
}

void *library_function(const char *name) {
  library_known();
  void *found = loaded ? dlsym(loaded, name) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

void *next_function(const char *name) {
  void *found = dlsym(RTLD_NEXT, name); /* after us in the order of search: perhaps another tool's wrapper */
  if (found) return found;
  library_known();
  return loaded ? dlsym(loaded, name) : NULL;
}

const char *op_name(word op) {
  op = handle(op);
  for (int i = 0; i < OPS; i++)
    if (ops[i] && ops[i] == op) return op_names[i];
  return "user";
}

/* Told by the handle: to ask MPI for a datatype's making is an error for those made with 64-bit counts, and errors are fatal.
 * MPICH marks what is built in by the two highest bits; the standard ABI numbers it below 4096; in Open MPI it is a variable, so
 * that its address lies in the library or, as a copy, in the program, where nothing that was allocated lies. */
enum { RANGES = 64 };
static struct {
  uintptr_t low, high;
} ranges[RANGES];
static int ranges_known;

static int remember_ranges(struct dl_phdr_info *object, size_t size, void *data) {
  (void)size, (void)data;
  bool program = !object->dlpi_name || !*object->dlpi_name;
  for (int i = 0; i < object->dlpi_phnum && (program || !strcmp(object->dlpi_name, loaded_name)); i++)
    if (object->dlpi_phdr[i].p_type == PT_LOAD && ranges_known < RANGES) {
      ranges[ranges_known].low = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
      ranges[ranges_known].high = ranges[ranges_known].low + object->dlpi_phdr[i].p_memsz;
      ranges_known++;
    }
  return 0;
}

bool type_is_predefined(word datatype) {
  word value = handle(datatype);
  if (library.handle_bytes == 4) return value >> 30 == 1;
  if (library.status_bytes == 32) return value < 4096;
  for (int i = 0; i < ranges_known; i++)
    if (value >= ranges[i].low && value < ranges[i].high) return true;
  return false;
}

/* ------------------------------------------------------------------------------------------------------------ who is calling
 * Some libraries use their own public interface (their MPI-IO does, and so do components loaded at run time). Such calls are not
 * the program's. Each place in the code is asked for once. */
static bool belongs_to_library(const void *address) {
  Dl_info where;
  if (!dladdr(address, &where) || !where.dli_fname) return false;
  const char *base = strrchr(where.dli_fname, '/');
  base = base ? base + 1 : where.dli_fname;
  return !strcmp(where.dli_fname, loaded_name) || !strncmp(base, "mca_", 4) || !strncmp(base, "libopen-", 8);
}

bool program_calls(const void *address) {
  static _Atomic uintptr_t sites[SITES];
  uintptr_t key = (uintptr_t)address << 1;
  _Atomic uintptr_t *site = &sites[((uintptr_t)address * 0x9E3779B97F4A7C15u) >> 52];
  uintptr_t seen = atomic_load_explicit(site, memory_order_relaxed);
  if (LIKELY((seen & ~(uintptr_t)1) == key)) return seen & 1;
  bool program = !belongs_to_library(address);
  atomic_store_explicit(site, key | program, memory_order_relaxed);
  return program;
}
