/* A small object file made by hand: every kind of relocation that kernels use. */
#ifndef TESTS_UNIT_ELF_H
#define TESTS_UNIT_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
  ELF_NULL,
  ELF_TEXT,
  ELF_CONST,
  ELF_REL_CONST,
  ELF_RELA,
  ELF_RELA_CONST,
  ELF_SYMS,
  ELF_STRS,
  ELF_SECTIONS
};
enum { ELF_MOST = 2048 };

/* k(buf, ...): buf[0] is int64_t[4]; makes it {a, 22, 33, 42}. */
static const unsigned char elf_code[] = {
    0x48, 0x8b, 0x07,                               /* mov (%rdi), %rax */
    0x48, 0x8b, 0x0d, 0,    0,    0,    0,          /* mov a(%rip), %rcx        PC32 at 6 */
    0x48, 0x89, 0x08,                               /* mov %rcx, (%rax) */
    0x48, 0x8b, 0x0d, 0,    0,    0,    0,          /* mov b@GOTPCREL(%rip), %rcx   at 16 */
    0x48, 0x8b, 0x09,                               /* mov (%rcx), %rcx */
    0x48, 0x89, 0x48, 0x08,                         /* mov %rcx, 8(%rax) */
    0x48, 0x8b, 0x0d, 0,    0,    0,    0,          /* mov p(%rip), %rcx        PC32 at 30 */
    0x48, 0x8b, 0x09,                               /* mov (%rcx), %rcx */
    0x48, 0x89, 0x48, 0x10,                         /* mov %rcx, 16(%rax) */
    0xe8, 0,    0,    0,    0,                      /* call f                  PLT32 at 42 */
    0xc3,                                           /* ret */
    0x48, 0xc7, 0x40, 0x18, 0x2a, 0x00, 0x00, 0x00, /* f: movq $42, 24(%rax) */
    0xc3,
};

static const char elf_names[] =
    "\0.text\0.rodata\0.data.rel.ro\0.rela.text\0.rela.data.rel.ro\0.symtab\0"
    ".strtab\0k\0f\0b\0outside";

static uint32_t elf_name(const char *s) {
  for (uint32_t at = 0; at < sizeof elf_names; at += (uint32_t)strlen(elf_names + at) + 1)
    if (!strcmp(elf_names + at, s)) return at;
  return 0;
}

/* The object, with `a` as its first constant, in `out` (ELF_MOST bytes); its length. Where `wrong`
 * is set the call goes to a function outside. */
static size_t elf_object(unsigned char *out, int64_t a, bool wrong) {
  int64_t constants[3] = {a, 22, 33}, pointer = 0;
  Elf64_Sym syms[] = {
      {0},
      {0, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 0, ELF_CONST, 0, 0},
      {0, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 0, ELF_REL_CONST, 0, 0},
      {elf_name("f"), ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0, ELF_TEXT, 47, 9},
      {elf_name("b"), ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, ELF_CONST, 8, 8},
      {elf_name("k"), ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, ELF_TEXT, 0, 47},
      {elf_name("outside"), ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), 0, SHN_UNDEF, 0, 0},
  };
  Elf64_Rela rela[] = {
      {6, ELF64_R_INFO(1, R_X86_64_PC32), -4},
      {16, ELF64_R_INFO(4, R_X86_64_REX_GOTPCRELX), -4},
      {30, ELF64_R_INFO(2, R_X86_64_PC32), -4},
      {42, ELF64_R_INFO(wrong ? 6 : 3, R_X86_64_PLT32), -4},
  };
  Elf64_Rela rela_const[] = {{0, ELF64_R_INFO(1, R_X86_64_64), 16}};
  const struct {
    const void *bytes;
    size_t size;
    Elf64_Shdr head;
  } part[ELF_SECTIONS] = {
      [ELF_TEXT] = {elf_code,
                    sizeof elf_code,
                    {.sh_name = elf_name(".text"),
                     .sh_type = SHT_PROGBITS,
                     .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                     .sh_addralign = 16}},
      [ELF_CONST] = {constants,
                     sizeof constants,
                     {.sh_name = elf_name(".rodata"),
                      .sh_type = SHT_PROGBITS,
                      .sh_flags = SHF_ALLOC,
                      .sh_addralign = 8}},
      [ELF_REL_CONST] = {&pointer,
                         sizeof pointer,
                         {.sh_name = elf_name(".data.rel.ro"),
                          .sh_type = SHT_PROGBITS,
                          .sh_flags = SHF_ALLOC | SHF_WRITE,
                          .sh_addralign = 8}},
      [ELF_RELA] = {rela,
                    sizeof rela,
                    {.sh_name = elf_name(".rela.text"),
                     .sh_type = SHT_RELA,
                     .sh_link = ELF_SYMS,
                     .sh_info = ELF_TEXT,
                     .sh_entsize = sizeof *rela,
                     .sh_addralign = 8}},
      [ELF_RELA_CONST] = {rela_const,
                          sizeof rela_const,
                          {.sh_name = elf_name(".rela.data.rel.ro"),
                           .sh_type = SHT_RELA,
                           .sh_link = ELF_SYMS,
                           .sh_info = ELF_REL_CONST,
                           .sh_entsize = sizeof *rela,
                           .sh_addralign = 8}},
      [ELF_SYMS] = {syms,
                    sizeof syms,
                    {.sh_name = elf_name(".symtab"),
                     .sh_type = SHT_SYMTAB,
                     .sh_link = ELF_STRS,
                     .sh_info = 5,
                     .sh_entsize = sizeof *syms,
                     .sh_addralign = 8}},
      [ELF_STRS] = {elf_names,
                    sizeof elf_names,
                    {.sh_name = elf_name(".strtab"), .sh_type = SHT_STRTAB, .sh_addralign = 1}},
  };
  Elf64_Ehdr h = {.e_type = ET_REL,
                  .e_machine = EM_X86_64,
                  .e_version = EV_CURRENT,
                  .e_ehsize = sizeof h,
                  .e_shoff = sizeof h,
                  .e_shentsize = sizeof(Elf64_Shdr),
                  .e_shnum = ELF_SECTIONS,
                  .e_shstrndx = ELF_STRS};
  memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64;
  h.e_ident[EI_DATA] = ELFDATA2LSB;
  h.e_ident[EI_VERSION] = EV_CURRENT;
  memset(out, 0, ELF_MOST);
  memcpy(out, &h, sizeof h);
  size_t at = sizeof h + sizeof(Elf64_Shdr) * ELF_SECTIONS;
  for (int i = 1; i < ELF_SECTIONS; i++) {
    Elf64_Shdr s = part[i].head;
    s.sh_offset = at;
    s.sh_size = part[i].size;
    memcpy(out + sizeof h + sizeof s * (size_t)i, &s, sizeof s);
    memcpy(out + at, part[i].bytes, part[i].size);
    at = (at + part[i].size + 7) & ~(size_t)7;
  }
  return at;
}

/* Header of a section, to change it; `object` is aligned to 8 bytes. */
static inline Elf64_Shdr *elf_section(unsigned char *object, int i) {
  return (Elf64_Shdr *)(void *)(object + sizeof(Elf64_Ehdr)) + i;
}

#endif
