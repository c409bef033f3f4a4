/* A code generator without LLVM: the test program runs itself as one. What it does with a request
 * is written in the request's text:
 *
 *   kill N    dies of signal N            exit N    ends with status N
 *   hang      never answers               slow N    answers after N milliseconds
 *   garbage   answers nonsense            other     answers with another id
 *   short     dies in the middle of its answer
 *   error T   answers with the error T    big N     answers with N bytes
 *   noise N   answers with bytes drawn from N, most often after a plausible head, and ends
 *   once FILE dies where FILE exists, and removes it
 *   child FILE leaves a process behind that waits, writes its number to FILE, and never answers
 *   space     answers with the error "no space" where 8 GiB of addresses are not to be had
 *
 * Anything else is answered with the object of tests/unit/elf.h, whose first constant is the length
 * of the text. A first word of CKL_FAKE in the environment counts before the text. */
#ifndef TESTS_UNIT_FAKE_CODEGEN_H
#define TESTS_UNIT_FAKE_CODEGEN_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jit/engine/codegen.h"
#include "tests/unit/elf.h"

static void fake_read(void *to, size_t n) {
  for (char *p = to; n;) {
    ssize_t got = read(0, p, n);
    if (got <= 0) _exit(0);
    p += got;
    n -= (size_t)got;
  }
}

static void fake_write(const void *from, size_t n) {
  for (const char *p = from; n;) {
    ssize_t put = write(0, p, n);
    if (put <= 0) _exit(0);
    p += put;
    n -= (size_t)put;
  }
}

static void fake_answer(CodegenFrame f, CodegenKind kind, const void *bytes, size_t n) {
  f.kind = kind;
  f.length = n;
  fake_write(&f, sizeof f);
  fake_write(bytes, n);
}

static void fake_die(int sig) {
  signal(sig, SIG_DFL); /* sanitizers have handlers */
  raise(sig);
}

static void fake_noise(CodegenFrame f, unsigned seed) {
  unsigned char bytes[300];
  for (size_t i = 0; i < sizeof bytes; i++) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = (unsigned char)(seed >> 24);
  }
  f.kind = seed % 7;
  f.length = seed % 5 ? seed % 250 : seed;
  if (seed % 11) memcpy(bytes, &f, sizeof f);
  if (seed % 3 == 0) bytes[seed % sizeof f] ^= (unsigned char)(seed >> 8);
  fake_write(bytes, sizeof bytes - seed % 40);
  _exit(0);
}

static void fake_child(const char *path) {
  FILE *out = fopen(path, "w");
  pid_t child = fork();
  while (!child) pause();
  if (out) fprintf(out, "%ld\n", (long)child);
  if (out) fclose(out);
}

static void fake_one(CodegenFrame f, const char *text) {
  static unsigned char object[ELF_MOST];
  const char *found;
  if (!strncmp(text, "kill ", 5)) {
    fake_die(atoi(text + 5));
  } else if (!strncmp(text, "exit ", 5)) {
    _exit(atoi(text + 5));
  } else if (!strcmp(text, "hang")) {
    for (;;) pause();
  } else if (!strncmp(text, "child ", 6)) {
    fake_child(text + 6);
    for (;;) pause();
  } else if (!strcmp(text, "space")) {
    void *volatile p = malloc((size_t)8 << 30);
    if (!p) fake_answer(f, CODEGEN_ERROR, "no space", 8);
    free(p);
    if (!p) return;
  } else if (!strcmp(text, "garbage")) {
    fake_write("nonsense nonsense nonsense nonsense nonsense nonsense", 53);
    for (;;) pause();
  } else if (!strcmp(text, "short")) {
    f.kind = CODEGEN_OBJECT;
    f.length = 1000;
    fake_write(&f, sizeof f);
    fake_write("abc", 3);
    _exit(0);
  } else if (!strncmp(text, "noise ", 6)) {
    fake_noise(f, (unsigned)atoi(text + 6));
  } else if (!strcmp(text, "other")) {
    f.id += 7;
  } else if (!strncmp(text, "slow ", 5)) {
    nanosleep(&(struct timespec){0, 1000000L * atoi(text + 5)}, NULL);
  } else if (!strncmp(text, "error ", 6)) {
    fake_answer(f, CODEGEN_ERROR, text + 6, strlen(text + 6));
    return;
  } else if (!strncmp(text, "big ", 4)) {
    size_t n = (size_t)atol(text + 4);
    char *bytes = calloc(n, 1);
    for (size_t i = 0; i < n; i++) bytes[i] = (char)i;
    fake_answer(f, CODEGEN_OBJECT, bytes, n);
    free(bytes);
    return;
  } else if ((found = strstr(text, "once /")) && !unlink(found + 5)) {
    fake_die(SIGSEGV);
  }
  size_t n = elf_object(object, (int64_t)f.length, false);
  fake_answer(f, CODEGEN_OBJECT, object, n);
}

/* The path of this program, to be given as the code generator's. */
static const char *fake_path(void) {
  static char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  path[n < 0 ? 0 : n] = 0;
  setenv("CKL_FAKE", "", 0);
  return path;
}

/* Call it first in main: does not return in the code generator. */
static void fake_main(int argc) {
  const char *how = getenv("CKL_FAKE");
  if (argc != 1 || !how) return;
  for (;;) {
    CodegenFrame f;
    fake_read(&f, sizeof f);
    char *text = calloc(f.length + 1, 1);
    fake_read(text, f.length);
    fake_one(f, *how ? how : text);
    free(text);
  }
}

#endif
