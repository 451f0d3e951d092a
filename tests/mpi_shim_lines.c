/* Writes lines as the shim does, under a limit on the size of files that this program sets itself: MPI would not start under it. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
  struct rlimit limit = {8192, 8192};
  if (argc < 2 || setrlimit(RLIMIT_FSIZE, &limit) || !file_open(argv[1], "{\"pid\":0}\n", 10)) return 2;
  for (int i = 0; i < 1000; i++) {
    struct line line;
    line_begin(&line, 'e');
    line_int(&line, i);
    line_int(&line, now_ns());
    line_end(&line);
  }
  struct line line; /* too long for a line: left out whole */
  line_begin(&line, 'b');
  for (int i = 0; i < 100; i++) line_text(&line, "0123456789");
  line_end(&line);
  file_end("exit", true, 0);
  puts("untouched");
  return 5;
}
