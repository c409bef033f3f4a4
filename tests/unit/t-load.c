/* The loader: a good object runs, every kind of bad one is refused with a reason. */
#include "jit/engine/load.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "tests/tap.h"
#include "tests/unit/elf.h"
#include "tests/unit/failing.h"

static _Alignas(8) unsigned char object[ELF_MOST];
static size_t size;

/* Loads `n` bytes of the object from a block of that size; checks that nothing is left behind. */
static bool loads(size_t n, Err *e) {
  Failing f;
  Mem m;
  LoadCode c;
  failing_init(&f, &m, 0);
  unsigned char *copy = malloc(n ? n : 1);
  memcpy(copy, object, n);
  bool ok = load_object(&m, copy, n, &c, e);
  free(copy);
  check(ok == (c.entry != NULL));
  load_free(&m, &c);
  check(failing_clean(&f, &m));
  return ok;
}

static void refused(const char *why) {
  Err e = {.text = ""};
  check(!loads(size, &e));
  check_has(e.text, why);
}

static void fresh(void) {
  size = elf_object(object, 11, false);
}

static Elf64_Ehdr *header(void) {
  return (Elf64_Ehdr *)(void *)object;
}

static Elf64_Rela *relocation(int section, size_t i) {
  return (Elf64_Rela *)(void *)(object + elf_section(object, section)->sh_offset) + i;
}

static Elf64_Sym *symbol(size_t i) {
  return (Elf64_Sym *)(void *)(object + elf_section(object, ELF_SYMS)->sh_offset) + i;
}

static void t_runs(void) {
  Failing f;
  Mem m;
  LoadCode c[20];
  Err e = {.text = ""};
  failing_init(&f, &m, 0);
  for (int i = 0; i < 20; i++) {
    unsigned char *copy = malloc(ELF_MOST + 1);
    size = elf_object(object, i, false);
    memcpy(copy + 1, object, size); /* at an odd address */
    need(load_object(&m, copy + 1, size, &c[i], &e));
    free(copy);
  }
  for (int i = 0; i < 20; i += 2) load_free(&m, &c[i]);
  for (int i = 1; i < 20; i += 2) {
    int64_t got[4] = {0};
    void *buf[1] = {got};
    c[i].entry(buf, NULL, 0, 1, NULL, NULL);
    check_int(got[0], ==, i);
    check_int(got[1], ==, 22);
    check_int(got[2], ==, 33);
    check_int(got[3], ==, 42);
    check_size(c[i].code_size, ==, 47);
    load_free(&m, &c[i]);
  }
  check(failing_clean(&f, &m));
}

static void t_protection(void) {
  Mem m;
  LoadCode c;
  Err e = {.text = ""};
  mem_init(&m, NULL, NULL);
  fresh();
  need(load_object(&m, object, size, &c, &e));
  char line[512], want[40];
  snprintf(want, sizeof want, "%lx-", (unsigned long)(uintptr_t)c.base);
  FILE *maps = fopen("/proc/self/maps", "r");
  need(maps);
  bool found = false;
  while (fgets(line, sizeof line, maps))
    if (!strncmp(line, want, strlen(want))) {
      found = true;
      check_has(line, " r-xp ");
    }
  fclose(maps);
  check(found);
  load_free(&m, &c);
}

static void t_short(void) {
  fresh();
  size_t full = size;
  Elf64_Shdr *last = elf_section(object, ELF_STRS);
  for (size_t n = 0; n < last->sh_offset + last->sh_size; n++) {
    Err e = {.text = ""};
    check_msg(!loads(n, &e), "%zu of %zu bytes are loaded", n, full);
    check(e.text[0]);
  }
  Err e = {.text = ""};
  check(loads(last->sh_offset + last->sh_size, &e));
}

static void t_header(void) {
  fresh(), header()->e_ident[0] = 'x', refused("no relocatable object");
  fresh(), header()->e_ident[EI_CLASS] = ELFCLASS32, refused("no relocatable object");
  fresh(), header()->e_ident[EI_DATA] = ELFDATA2MSB, refused("no relocatable object");
  fresh(), header()->e_type = ET_DYN, refused("no relocatable object");
  fresh(), header()->e_machine = EM_AARCH64, refused("no relocatable object");
  fresh(), header()->e_shentsize = 63, refused("table of sections");
  fresh(), header()->e_shnum = 0, refused("table of sections");
  fresh(), header()->e_shnum = 0xffff, refused("table of sections");
  fresh(), header()->e_shnum = 200, refused("table of sections");
  fresh(), header()->e_shoff = size - 100, refused("table of sections");
  fresh(), header()->e_shoff = UINT64_MAX - 63, refused("table of sections");
  fresh(), header()->e_shstrndx = 77, refused("names of sections");
  fresh(), header()->e_shstrndx = ELF_TEXT, refused("names of sections");
}

static void t_sections(void) {
  for (int i = 1; i < ELF_SECTIONS; i++) {
    fresh(), elf_section(object, i)->sh_offset = size + 1, refused("outside of the file");
    fresh(), elf_section(object, i)->sh_offset = UINT64_MAX, refused("outside of the file");
    fresh(), elf_section(object, i)->sh_size = UINT64_MAX, refused("outside of the file");
    fresh(), elf_section(object, i)->sh_size = size, refused("outside of the file");
  }
  fresh(), elf_section(object, ELF_CONST)->sh_type = SHT_NOBITS, refused("section `.rodata`");
  fresh(), elf_section(object, ELF_CONST)->sh_flags |= SHF_WRITE, refused("section `.rodata`");
  fresh(), elf_section(object, ELF_CONST)->sh_flags |= SHF_TLS, refused("section `.rodata`");
  fresh(), elf_section(object, ELF_CONST)->sh_addralign = 3, refused("alignment");
  fresh(), elf_section(object, ELF_CONST)->sh_addralign = 1ull << 40, refused("alignment");
  fresh(), elf_section(object, ELF_CONST)->sh_name = 5000, refused("name of a section");
  fresh(), elf_section(object, ELF_STRS)->sh_size = 1, refused("name of a section");
  fresh(), elf_section(object, ELF_CONST)->sh_flags = 0, refused("not loaded");
  fresh(), elf_section(object, ELF_TEXT)->sh_flags = SHF_ALLOC, refused("no function");
  fresh();
  for (int i = ELF_TEXT; i <= ELF_REL_CONST; i++) elf_section(object, i)->sh_flags = 0;
  refused("no code");
}

static void t_symbols(void) {
  fresh(), elf_section(object, ELF_SYMS)->sh_type = SHT_PROGBITS, refused("no table of symbols");
  fresh(), elf_section(object, ELF_SYMS)->sh_entsize = 16, refused("table of symbols");
  fresh(), elf_section(object, ELF_SYMS)->sh_link = 99, refused("table of symbols");
  fresh(), elf_section(object, ELF_SYMS)->sh_link = ELF_TEXT, refused("no table of symbols");
  fresh(), elf_section(object, ELF_RELA)->sh_type = SHT_SYMTAB, refused("table of symbols");
  fresh(), elf_section(object, ELF_SYMS)->sh_size = 24 * 3, refused("symbol that is not there");
  fresh(), elf_section(object, ELF_SYMS)->sh_size = 24 * 5, refused("no function");
  fresh(), symbol(5)->st_name = 100000, refused("no function");
  fresh(), symbol(5)->st_name = elf_name("f"), refused("no function");
  fresh(), symbol(5)->st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC), refused("no function");
  fresh(), symbol(5)->st_shndx = ELF_CONST, refused("no function");
  fresh(), symbol(5)->st_shndx = SHN_ABS, refused("not loaded");
  fresh(), symbol(5)->st_shndx = SHN_COMMON, refused("not loaded");
  fresh(), symbol(5)->st_shndx = SHN_UNDEF, refused("needs `k` from outside");
  fresh(), symbol(5)->st_value = sizeof elf_code, refused("no function");
  fresh(), symbol(5)->st_value = 1000, refused("outside of its section");
  fresh(), symbol(3)->st_value = UINT64_MAX, refused("outside of its section");
  fresh(), symbol(3)->st_shndx = ELF_RELA, refused("`f`, which is not loaded");
  size = elf_object(object, 11, true), refused("needs `outside` from outside");
}

static void t_relocations(void) {
  fresh(), elf_section(object, ELF_RELA)->sh_type = SHT_REL, refused("bad relocations");
  fresh(), elf_section(object, ELF_RELA)->sh_entsize = 16, refused("bad relocations");
  fresh(), relocation(ELF_RELA, 0)->r_offset = sizeof elf_code - 3,
                                refused("outside of its section");
  fresh(), relocation(ELF_RELA, 1)->r_offset = UINT64_MAX, refused("outside of its section");
  fresh(), relocation(ELF_RELA_CONST, 0)->r_offset = 1, refused("outside of its section");
  fresh(), relocation(ELF_RELA, 0)->r_addend = 1ll << 31, refused("too far");
  fresh(), relocation(ELF_RELA, 0)->r_addend = -(1ll << 33), refused("too far");
  fresh(), relocation(ELF_RELA, 0)->r_info = ELF64_R_INFO(1, R_X86_64_32S), refused("kind 11");
  fresh(), relocation(ELF_RELA, 0)->r_info = ELF64_R_INFO(1, R_X86_64_32), refused("kind 10");
  fresh(), relocation(ELF_RELA, 0)->r_info = ELF64_R_INFO(1, R_X86_64_TPOFF64), refused("kind 18");
  fresh(), relocation(ELF_RELA, 0)->r_info = ELF64_R_INFO(7, R_X86_64_PC32), refused("not there");
  fresh(), relocation(ELF_RELA, 0)->r_info = ELF64_R_INFO(0, R_X86_64_PC32),
                                refused("from outside");
}

static void t_nomem(void) {
  for (int nth = 1; nth <= 2; nth++) {
    Failing f;
    Mem m;
    LoadCode c;
    Err e = {.text = ""};
    failing_init(&f, &m, nth);
    fresh();
    bool ok = load_object(&m, object, size, &c, &e);
    check(ok == (nth == 2)); /* without memory for the debugger it works too */
    check(ok || e.nomem);
    load_free(&m, &c);
    check(failing_clean(&f, &m));
  }
}

int main(void) {
  TEST(t_runs(), "objects run, wherever they lie in memory and in any order");
  TEST(t_protection(), "code can be executed and not written");
  TEST(t_short(), "an object that is cut short anywhere is refused");
  TEST(t_header(), "bad headers are refused");
  TEST(t_sections(), "bad sections are refused");
  TEST(t_symbols(), "bad symbols and symbols from outside are refused");
  TEST(t_relocations(), "bad relocations are refused");
  TEST(t_nomem(), "out of memory is an error");
  return tap_done();
}
