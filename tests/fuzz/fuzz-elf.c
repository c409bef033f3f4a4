/* fuzz-elf SECONDS [SEED] [OBJECT...]: mutated objects into the loader; nothing of them is run.
 *
 * What is loaded must lie inside of its mapping, what is refused must say why, nothing may leak.
 * Objects are the one of tests/unit/elf.h and those named. A find is printed with its bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jit/engine/load.h"
#include "tests/unit/elf.h"
#include "tests/unit/failing.h"

typedef struct Bytes {
  unsigned char *b;
  size_t n;
} Bytes;

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return below ? (uint32_t)(state >> 33) % below : 0;
}

static uint64_t number(size_t n) {
  static const uint64_t edges[] = {0,
                                   1,
                                   2,
                                   3,
                                   7,
                                   8,
                                   16,
                                   24,
                                   63,
                                   64,
                                   0x7f,
                                   0xff,
                                   0xffff,
                                   0xfff1,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0x7fffffffffffffff,
                                   0x8000000000000000};
  switch (draw(4)) {
  case 0: return draw((uint32_t)n + 2);
  case 1: return edges[draw(sizeof edges / sizeof *edges)];
  case 2: return UINT64_MAX - draw(100);
  default: return draw(64);
  }
}

/* Where something that matters is: a field of the header, of a section, a symbol, a relocation. */
static size_t field(const unsigned char *b, size_t n) {
  Elf64_Ehdr h;
  Elf64_Shdr s;
  if (n < sizeof h || !draw(8)) return draw((uint32_t)n + 1);
  if (!draw(8)) return draw(sizeof h);
  memcpy(&h, b, sizeof h);
  if (!h.e_shnum || h.e_shoff > n) return draw((uint32_t)n + 1);
  size_t at = h.e_shoff + sizeof s * draw(h.e_shnum);
  if (draw(2) || at > n - sizeof s || n < sizeof s) return at + draw(sizeof s);
  memcpy(&s, b + at, sizeof s);
  return s.sh_type != SHT_SYMTAB && s.sh_type != SHT_RELA
             ? at + draw(sizeof s)
             : s.sh_offset + draw((uint32_t)s.sh_size + 1);
}

static void mutate(Bytes *x) {
  for (uint32_t k = 1 + draw(5); k > 0; k--) {
    size_t at = field(x->b, x->n), width = (size_t)1 << draw(4);
    if (!draw(30)) {
      x->n = draw((uint32_t)x->n + 1);
      continue;
    }
    if (draw(3)) at &= ~(width - 1);
    if (at > x->n || x->n - at < width) continue;
    uint64_t v = number(x->n);
    if (!draw(4)) {
      memcpy(&v, x->b + at, width);
      v ^= (uint64_t)1 << draw(64);
    }
    memcpy(x->b + at, &v, width);
  }
}

static bool try_one(const Bytes *x, long *loaded) {
  Failing f;
  Mem m;
  LoadCode c;
  Err e = {.text = ""};
  failing_init(&f, &m, draw(20) ? 0 : 1 + draw(3));
  bool ok = load_object(&m, x->b, x->n, &c, &e), good = ok || e.text[0];
  if (ok) {
    uintptr_t entry = 0;
    memcpy(&entry, &c.entry, sizeof entry);
    ++*loaded;
    good =
        entry - (uintptr_t)c.base < c.size && c.code_size <= c.size - (entry - (uintptr_t)c.base);
    for (size_t i = 0; i < c.size; i += 64) (void)((volatile unsigned char *)c.base)[i];
  }
  load_free(&m, &c);
  return good && failing_clean(&f, &m);
}

static Bytes read_file(const char *path) {
  FILE *in = fopen(path, "rb");
  Bytes x = {NULL, 0};
  if (!in) return x;
  x.b = malloc(1 << 20);
  x.n = fread(x.b, 1, 1 << 20, in);
  fclose(in);
  return x;
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
  Bytes seeds[64];
  int count = 1;
  seeds[0].b = malloc(ELF_MOST);
  seeds[0].n = elf_object(seeds[0].b, 11, false);
  for (int i = 3; i < argc && count < 64; i++)
    if ((seeds[count] = read_file(argv[i])).b) count++;
  printf("seed %" PRIu64 "\n", state);
  for (int i = 0; i < 50; i++) draw(2);
  time_t start = time(NULL);
  long inputs = 0, loaded = 0;
  int status = 0;
  for (; !status && difftime(time(NULL), start) < seconds; inputs++) {
    Bytes seed = seeds[draw((uint32_t)count)], x = {malloc(seed.n ? seed.n : 1), seed.n};
    memcpy(x.b, seed.b, seed.n);
    mutate(&x);
    x.b = realloc(x.b, x.n ? x.n : 1); /* of the exact size, for ASan */
    if (!try_one(&x, &loaded)) {
      printf("input %ld is a find, %zu bytes:\n", inputs, x.n);
      for (size_t i = 0; i < x.n; i++) printf("%02x%s", x.b[i], i % 32 == 31 ? "\n" : " ");
      printf("\n");
      status = 1;
    }
    free(x.b);
  }
  for (int i = 0; i < count; i++) free(seeds[i].b);
  printf("%ld inputs, %ld of them loaded\n", inputs, loaded);
  return status;
}
