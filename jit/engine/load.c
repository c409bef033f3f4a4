/* The loader of kernels: relocatable ELF64 objects for the machines of target.def.
 *
 * In: the bytes of an object. Out: its code, mapped. Idea: all loaded sections go into one
 * mapping, which is written first and executable afterwards, never both. Every offset, size, index
 * and name is checked against the object before it is used; the object may be any bytes at all.
 * Invariant: an object that is accepted refers to nothing outside of itself. Format: System V ABI,
 * ELF-64 Object File Format.
 */
#define _GNU_SOURCE
#include "jit/engine/load.h"

#include <elf.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "jit/engine/target.h"

#ifndef SHT_X86_64_UNWIND /* of the psABI; not every C library has it */
#define SHT_X86_64_UNWIND 0x70000001
#endif

enum { PAGE = 4096, MOST_SECTIONS = 1024, MOST_BYTES = 1 << 28 };

typedef enum RelocKind { RELOC_IGNORED, RELOC_ABSOLUTE, RELOC_RELATIVE, RELOC_TABLE } RelocKind;

static const struct Reloc {
  EngMachineId machine;
  uint32_t type;
  size_t bytes;
  RelocKind kind;
} relocs[] = {
#define RELOCATION(machine, type, bytes, kind) {MACHINE_##machine, type, bytes, RELOC_##kind},
#include "jit/engine/target.def"
};

typedef struct Load {
  Mem *mem;
  EngMachineId machine; /* of the object */
  const unsigned char *file;
  size_t size;
  const unsigned char *sections; /* the table of headers, at any alignment */
  size_t section_count;
  size_t *place; /* of each section in the mapping, or NOT_LOADED */
  Elf64_Shdr names, symbols, strings;
  size_t symbol_count;
  unsigned char *base;
  size_t used, got; /* bytes of the mapping; the next free word of the table of addresses */
  Err *e;
} Load;

static const size_t NOT_LOADED = SIZE_MAX;

static bool within(const Load *l, uint64_t at, uint64_t n) {
  return at <= l->size && n <= l->size - at;
}

static Elf64_Shdr section(const Load *l, size_t i) {
  Elf64_Shdr s;
  memcpy(&s, l->sections + i * sizeof s, sizeof s);
  return s;
}

static Elf64_Sym symbol(const Load *l, size_t i) {
  Elf64_Sym s;
  memcpy(&s, l->file + l->symbols.sh_offset + i * sizeof s, sizeof s);
  return s;
}

/* The string at `at` of a string section; NULL if it does not end inside the section. */
static const char *string(const Load *l, const Elf64_Shdr *table, uint64_t at) {
  if (at >= table->sh_size) return NULL;
  const char *s = (const char *)l->file + table->sh_offset + at;
  return memchr(s, 0, table->sh_size - at) ? s : NULL;
}

/* ---- headers */

static bool read_header(Load *l) {
  Elf64_Ehdr h;
  if (l->size < sizeof h || l->size > MOST_BYTES) return err_set(l->e, "is no object file");
  memcpy(&h, l->file, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_type != ET_REL)
    return err_set(l->e, "is no relocatable object");
  while (l->machine < MACHINE_COUNT && eng_machines[l->machine].elf != h.e_machine) l->machine++;
  if (l->machine == MACHINE_COUNT)
    return err_set(l->e, "is no relocatable object for a machine that ckl knows");
  if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shnum < 1 || h.e_shnum > MOST_SECTIONS ||
      !within(l, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
    return err_set(l->e, "has a bad table of sections");
  l->sections = l->file + h.e_shoff;
  l->section_count = h.e_shnum;
  bool found = false;
  for (size_t i = 0; i < l->section_count; i++) {
    Elf64_Shdr s = section(l, i);
    if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL && !within(l, s.sh_offset, s.sh_size))
      return err_set(l->e, "has a section outside of the file");
    if (s.sh_type != SHT_SYMTAB) continue;
    if (found || s.sh_entsize != sizeof(Elf64_Sym) || s.sh_link >= l->section_count)
      return err_set(l->e, "has a bad table of symbols");
    l->symbols = s;
    l->symbol_count = s.sh_size / sizeof(Elf64_Sym);
    l->strings = section(l, s.sh_link);
    found = true;
  }
  if (!found || l->strings.sh_type != SHT_STRTAB) return err_set(l->e, "has no table of symbols");
  if (h.e_shstrndx < l->section_count) l->names = section(l, h.e_shstrndx);
  return l->names.sh_type == SHT_STRTAB || err_set(l->e, "has no names of sections");
}

/* ---- layout */

/* Sections with code, constants, and constants with addresses are loaded. Any other section that
 * takes memory is an error, since a kernel has no state. Unwind tables are left out. */
static bool place_section(Load *l, size_t i) {
  Elf64_Shdr s = section(l, i);
  l->place[i] = NOT_LOADED;
  if (!(s.sh_flags & SHF_ALLOC) || s.sh_type == SHT_X86_64_UNWIND || !s.sh_size) return true;
  const char *name = string(l, &l->names, s.sh_name);
  if (!name) return err_set(l->e, "has a bad name of a section");
  if (!strcmp(name, ".eh_frame")) return true;
  if (s.sh_type != SHT_PROGBITS || (s.sh_flags & SHF_TLS) ||
      ((s.sh_flags & SHF_WRITE) && strncmp(name, ".data.rel.ro", 12)))
    return err_set(l->e, "has a section `%s`", name);
  uint64_t align = s.sh_addralign ? s.sh_addralign : 1;
  if (align > PAGE || (align & (align - 1))) return err_set(l->e, "has a bad alignment");
  l->place[i] = (l->used + align - 1) & ~(size_t)(align - 1);
  l->used = l->place[i] + s.sh_size;
  /* sections may overlap in the file, so their sum has a bound of its own */
  return l->used <= 2 * (size_t)MOST_BYTES || err_set(l->e, "is too large");
}

/* The kind of a relocation; NULL if it is unknown. */
static const struct Reloc *reloc_of(const Load *l, Elf64_Rela r) {
  for (size_t i = 0; i < sizeof relocs / sizeof *relocs; i++)
    if (relocs[i].machine == l->machine && relocs[i].type == ELF64_R_TYPE(r.r_info))
      return &relocs[i];
  return NULL;
}

static Elf64_Rela relocation(const Load *l, const Elf64_Shdr *s, size_t i) {
  Elf64_Rela r;
  memcpy(&r, l->file + s->sh_offset + i * sizeof r, sizeof r);
  return r;
}

/* Applies the relocations of a loaded section. */
static bool relocates(const Load *l, const Elf64_Shdr *s) {
  return (s->sh_type == SHT_RELA || s->sh_type == SHT_REL) && s->sh_info < l->section_count &&
         l->place[s->sh_info] != NOT_LOADED;
}

/* Places the table of addresses. Each use gets its own word: there are few uses, if any. */
static bool place_table(Load *l) {
  size_t words = 0;
  for (size_t i = 0; i < l->section_count; i++) {
    Elf64_Shdr s = section(l, i);
    if (!relocates(l, &s)) continue;
    if (s.sh_type == SHT_REL || s.sh_entsize != sizeof(Elf64_Rela))
      return err_set(l->e, "has bad relocations");
    for (size_t k = 0; k < s.sh_size / sizeof(Elf64_Rela); k++) {
      const struct Reloc *how = reloc_of(l, relocation(l, &s, k));
      words += how && how->kind == RELOC_TABLE;
    }
  }
  l->got = (l->used + 7) & ~(size_t)7;
  l->used = l->got + 8 * words;
  return true;
}

/* ---- relocation */

/* The address of a symbol in the mapping. */
static bool address(const Load *l, size_t i, uint64_t *out) {
  if (i >= l->symbol_count) return err_set(l->e, "refers to a symbol that is not there");
  Elf64_Sym s = symbol(l, i);
  const char *name = string(l, &l->strings, s.st_name);
  if (s.st_shndx == SHN_UNDEF)
    return err_set(l->e, "needs `%s` from outside", name ? name : "something");
  if (s.st_shndx >= l->section_count || l->place[s.st_shndx] == NOT_LOADED)
    return err_set(l->e, "refers to `%s`, which is not loaded", name ? name : "something");
  Elf64_Shdr in = section(l, s.st_shndx);
  if (s.st_value > in.sh_size) return err_set(l->e, "has a symbol outside of its section");
  *out = (uint64_t)(uintptr_t)l->base + l->place[s.st_shndx] + s.st_value;
  return true;
}

static bool relocate(Load *l, const Elf64_Shdr *s, Elf64_Rela r) {
  const struct Reloc *how = reloc_of(l, r);
  Elf64_Shdr target = section(l, s->sh_info);
  if (!how) return err_set(l->e, "has a relocation of kind %u", (unsigned)ELF64_R_TYPE(r.r_info));
  if (how->kind == RELOC_IGNORED) return true;
  if (r.r_offset > target.sh_size || how->bytes > target.sh_size - r.r_offset)
    return err_set(l->e, "has a relocation outside of its section");
  unsigned char *at = l->base + l->place[s->sh_info] + r.r_offset;
  uint64_t value;
  if (!address(l, ELF64_R_SYM(r.r_info), &value)) return false;
  if (how->kind == RELOC_TABLE) {
    memcpy(l->base + l->got, &value, 8);
    value = (uint64_t)(uintptr_t)(l->base + l->got);
    l->got += 8;
  }
  value += (uint64_t)r.r_addend;
  if (how->kind != RELOC_ABSOLUTE) value -= (uint64_t)(uintptr_t)at;
  if (how->bytes == 4 && value + 0x80000000u > UINT32_MAX)
    return err_set(l->e, "has a relocation that is too far");
  memcpy(at, &value, how->bytes); /* little-endian: the low bytes are first */
  return true;
}

static bool relocate_all(Load *l) {
  for (size_t i = 0; i < l->section_count; i++) {
    Elf64_Shdr s = section(l, i);
    if (!relocates(l, &s)) continue;
    for (size_t k = 0; k < s.sh_size / sizeof(Elf64_Rela); k++)
      if (!relocate(l, &s, relocation(l, &s, k))) return false;
  }
  return true;
}

static bool find_entry(Load *l, LoadCode *out) {
  for (size_t i = 1; i < l->symbol_count; i++) {
    Elf64_Sym s = symbol(l, i);
    if (ELF64_ST_BIND(s.st_info) != STB_GLOBAL) continue;
    const char *name = string(l, &l->strings, s.st_name);
    if (!name || strcmp(name, "k")) continue;
    uint64_t at;
    if (!address(l, i, &at)) return false;
    Elf64_Shdr in = section(l, s.st_shndx);
    if (!(in.sh_flags & SHF_EXECINSTR) || s.st_value >= in.sh_size) break;
    out->code_size = s.st_size < in.sh_size - s.st_value ? s.st_size : in.sh_size - s.st_value;
    uintptr_t address_of_k = (uintptr_t)at;
    memcpy(&out->entry, &address_of_k, sizeof out->entry); /* C casts no number to a function */
    return true;
  }
  return err_set(l->e, "has no function `k`");
}

/* ---- the debugger */

/* gdb's interface for code made at run time (Debugging with GDB, "JIT Compilation Interface") is a
 * variable and a function of exactly these names, and one list for the whole process. It is the one
 * mutable global of ckl, behind a lock. ckl itself does not read it. */
typedef struct DebugEntry {
  struct DebugEntry *next, *prev;
  const char *symfile_addr;
  uint64_t symfile_size;
} DebugEntry;

struct jit_descriptor {
  uint32_t version, action_flag;
  DebugEntry *relevant_entry, *first_entry;
} __jit_debug_descriptor = {1, 0, NULL, NULL};

void __jit_debug_register_code(void);
__attribute__((noinline)) void __jit_debug_register_code(void) {
  __asm__ volatile("" ::: "memory");
}

static atomic_flag debug_lock = ATOMIC_FLAG_INIT;

static void debug_tell(DebugEntry *d, bool here) {
  while (atomic_flag_test_and_set(&debug_lock)) continue;
  DebugEntry *first = __jit_debug_descriptor.first_entry;
  if (here) {
    d->next = first;
    if (first) first->prev = d;
    __jit_debug_descriptor.first_entry = d;
  } else {
    if (d->next) d->next->prev = d->prev;
    if (d->prev)
      d->prev->next = d->next;
    else
      __jit_debug_descriptor.first_entry = d->next;
  }
  __jit_debug_descriptor.relevant_entry = d;
  __jit_debug_descriptor.action_flag = here ? 1 : 2;
  __jit_debug_register_code();
  atomic_flag_clear(&debug_lock);
}

/* Makes a copy of the object with the addresses of its sections, for the debugger. Without memory
 * for it there is no entry, which is no error. */
static DebugEntry *debug_add(Mem *m, const Load *l) {
  DebugEntry *d = mem_try(m, NULL, 0, sizeof *d + l->size);
  if (!d) return NULL;
  char *copy = (char *)(d + 1);
  *d = (DebugEntry){NULL, NULL, copy, l->size};
  memcpy(copy, l->file, l->size);
  for (size_t i = 0; i < l->section_count; i++) {
    if (l->place[i] == NOT_LOADED) continue;
    Elf64_Shdr s = section(l, i);
    s.sh_addr = (uint64_t)(uintptr_t)l->base + l->place[i];
    memcpy(copy + (l->sections - l->file) + i * sizeof s, &s, sizeof s);
  }
  debug_tell(d, true);
  return d;
}

/* ---- loading */

static bool load(Load *l, LoadCode *out) {
  for (size_t i = 0; i < l->section_count; i++)
    if (!place_section(l, i)) return false;
  if (!place_table(l)) return false;
  out->size = (l->used + PAGE - 1) & ~(size_t)(PAGE - 1);
  if (!out->size) return err_set(l->e, "has no code");
  if (!mem_charge(l->mem, out->size)) return err_nomem(l->e, "code");
  out->base = mmap(NULL, out->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (out->base == MAP_FAILED) {
    out->base = NULL;
    mem_discharge(l->mem, out->size);
    return err_nomem(l->e, "code");
  }
  l->base = out->base;
  for (size_t i = 0; i < l->section_count; i++) {
    Elf64_Shdr s = section(l, i);
    if (l->place[i] != NOT_LOADED) memcpy(l->base + l->place[i], l->file + s.sh_offset, s.sh_size);
  }
  if (!relocate_all(l) || !find_entry(l, out)) return false;
  return !mprotect(out->base, out->size, PROT_READ | PROT_EXEC) ||
         err_set(l->e, "cannot be made executable: this system forbids it");
}

bool load_object(Mem *m, const void *bytes, size_t n, LoadCode *out, Err *e) {
  Load l = {.mem = m, .file = bytes, .size = n, .e = e};
  *out = (LoadCode){0};
  if (!read_header(&l)) return false;
  size_t places = l.section_count * sizeof *l.place;
  l.place = mem_try(m, NULL, 0, places);
  if (!l.place) return err_nomem(e, "code");
  bool ok = load(&l, out);
  if (ok)
    out->debug = debug_add(m, &l);
  else
    load_free(m, out);
  mem_free(m, l.place, places);
  return ok;
}

size_t load_bytes(const LoadCode *c) {
  const DebugEntry *d = c->debug;
  return c->size + (d ? sizeof *d + d->symfile_size : 0);
}

void load_free(Mem *m, LoadCode *c) {
  DebugEntry *d = c->debug;
  if (d) {
    debug_tell(d, false);
    mem_free(m, d, sizeof *d + d->symfile_size);
  }
  if (c->base) {
    munmap(c->base, c->size);
    mem_discharge(m, c->size);
  }
  *c = (LoadCode){0};
}
