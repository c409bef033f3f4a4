/* The protocol between a session and the code generator process.
 *
 * The process `ckl-codegen` has a stream socket on descriptor 0 and uses it both ways. Each
 * message is a frame: the head below, then `length` bytes. Requests are answered in order, one
 * reply each, and the process ends when its input does. The text of a kernel is verified once more
 * there (lp_read), so nothing that arrives on the socket can do more than fail. Both ends run on
 * one machine: native byte order.
 */
#ifndef CKL_JIT_ENGINE_CODEGEN_H
#define CKL_JIT_ENGINE_CODEGEN_H

#include <stdint.h>

enum { CODEGEN_MAGIC = 0x316c6b63 /* "ckl1" */ };
enum { CODEGEN_MOST = 1 << 28 }; /* longest payload, in bytes */

typedef enum CodegenKind {
  CODEGEN_COMPILE = 1, /* request; payload: loop text */
  CODEGEN_OBJECT = 2,  /* reply; an ELF object with the symbol `k` */
  CODEGEN_ERROR = 3,   /* reply; a line of text */
  CODEGEN_TEXT = 4     /* reply; the text that a flag requests */
} CodegenKind;

/* flags of a request: text instead of an object */
enum {
  CODEGEN_DUMP_IR = 1,
  CODEGEN_DUMP_ASM = 2,
  CODEGEN_DUMP_PTX = 4,    /* for a GPU that is sm_80; the level does not matter */
  CODEGEN_DUMP_PTX_90 = 8, /* sm_90 */
  CODEGEN_DUMP = CODEGEN_DUMP_IR | CODEGEN_DUMP_ASM | CODEGEN_DUMP_PTX | CODEGEN_DUMP_PTX_90,
  CODEGEN_EMULATE = 16 /* an object for the emulator of emu.h */
};

typedef struct CodegenFrame {
  uint32_t magic, kind;
  uint64_t id;    /* chosen by the client; the reply has it too */
  uint32_t level; /* EngLevel */
  uint32_t flags;
  uint64_t length;
} CodegenFrame;

_Static_assert(sizeof(CodegenFrame) == 32, "a frame has no gaps");

#endif
