/* Tests of addresses against their buffers, in checked kernels (Kernel.checked).
 *
 * In: the addresses of a load or store of lanes. Out: code before it, which compares the address of
 * each active lane with the bytes of the buffer, as the host passes them. If an address is outside,
 * the function returns before the access, and the status names the instruction. The comparison is
 * with the pointer itself, so the test does not trust the code that computes addresses.
 *
 * Invariant: the size of a buffer and all valid offsets are multiples of the element size. Offsets
 * are compared unsigned, so an address before the buffer counts as one behind it. */
#include <stddef.h>

#include "jit/codegen/emit_impl.h"

#define B e->b

static LLVMTypeRef word(Emit *e) {
  return LLVMInt64TypeInContext(e->ctx);
}

static LLVMValueRef argument(Emit *e, LLVMValueRef args, size_t i) {
  LLVMValueRef at = emit_i64(e, (int64_t)i);
  return LLVMBuildLoad2(B, word(e), LLVMBuildGEP2(B, word(e), args, &at, 1, ""), "");
}

void emit_check_begin(Emit *e, LLVMValueRef args) {
  const Kernel *k = e->k;
  for (size_t i = 0; i < k->buf_count; i++) {
    const LBuf *b = &k->bufs[i];
    if (b->kind != LB_LOCAL) {
      e->bytes[i] = argument(e, args, k->arg_count + i);
      continue;
    }
    e->bytes[i] = emit_i64(e, b->each * (int64_t)dt_size((DType)b->dtype));
    if (b->arg < 0) continue;
    LLVMValueRef least[2] = {e->arg[b->arg], emit_i64(e, 0)};
    LLVMValueRef n = emit_intrinsic(e, "llvm.smax", word(e), 2, least);
    e->bytes[i] = LLVMBuildMul(B, e->bytes[i], n, "");
  }
  e->outside = emit_new_block(e, "outside");
  e->fault_at = emit_alloca(e, word(e), "fault.at");
  e->fault_site = emit_alloca(e, word(e), "fault.site");
}

/* A field of the KStatus. */
static LLVMValueRef field(Emit *e, size_t offset) {
  LLVMValueRef at = emit_i64(e, (int64_t)offset);
  return LLVMBuildGEP2(B, LLVMInt8TypeInContext(e->ctx), e->status, &at, 1, "");
}

/* The first thread that arrives here writes the report. */
void emit_check_end(Emit *e) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMBasicBlockRef tell = emit_new_block(e, "outside.tell");
  LLVMPositionBuilderAtEnd(B, e->outside);
  LLVMValueRef site = LLVMBuildLoad2(B, word(e), e->fault_site, "");
  LLVMValueRef instruction = LLVMBuildTrunc(B, site, i32, "");
  LLVMValueRef buf = LLVMBuildTrunc(B, LLVMBuildLShr(B, site, emit_i64(e, 32), ""), i32, "");
  LLVMValueRef swap = LLVMBuildAtomicCmpXchg(
      B, field(e, offsetof(KStatus, outside)), emit_i32(e, 0), instruction,
      LLVMAtomicOrderingSequentiallyConsistent, LLVMAtomicOrderingSequentiallyConsistent, false);
  LLVMBuildCondBr(B, LLVMBuildExtractValue(B, swap, 1, ""), tell, e->leave);
  LLVMPositionBuilderAtEnd(B, tell);
  LLVMBuildStore(B, buf, field(e, offsetof(KStatus, outside_buf)));
  LLVMValueRef at = LLVMBuildLoad2(B, word(e), e->fault_at, "");
  LLVMBuildStore(B, at, field(e, offsetof(KStatus, outside_at)));
  LLVMBuildBr(B, e->leave);
}

/* Leaves the kernel if `bad` is true in a lane, whose offset `off` is then outside. The status gets
 * the offset of the first such lane. */
static void leave_if(Emit *e, int buf, LLVMValueRef bad, LLVMValueRef off) {
  LLVMBasicBlockRef out = emit_new_block(e, "out"), in = emit_new_block(e, "within");
  LLVMBuildCondBr(B, any(e, bad), out, in);
  LLVMPositionBuilderAtEnd(B, out);
  int n = emit_width_of(bad);
  if (n > 1) {
    LLVMTypeRef lanes = LLVMIntTypeInContext(e->ctx, (unsigned)n);
    LLVMValueRef set = LLVMBuildZExt(B, LLVMBuildBitCast(B, bad, lanes, ""), word(e), "");
    LLVMValueRef arg[2] = {set, LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 0, false)};
    LLVMValueRef first = emit_intrinsic(e, "llvm.cttz", word(e), 2, arg);
    off = LLVMBuildExtractElement(B, off, first, "");
  }
  LLVMBuildStore(B, off, e->fault_at);
  int64_t site = (int64_t)buf << 32 | (int64_t)(e->now + 1);
  LLVMBuildStore(B, emit_i64(e, site), e->fault_site);
  LLVMBuildBr(B, e->outside);
  LLVMPositionBuilderAtEnd(B, in);
}

void emit_within(Emit *e, int buf, LLVMValueRef at, int n, LLVMValueRef mask) {
  int64_t size = (int64_t)dt_size((DType)e->k->bufs[buf].dtype);
  LLVMValueRef base = LLVMBuildPtrToInt(B, e->buf[buf], word(e), ""), limit = e->bytes[buf];
  bool each = emit_width_of(at) > 1;
  LLVMValueRef off = LLVMBuildPtrToInt(B, at, emit_like(at, word(e)), "");
  off = LLVMBuildSub(B, off, each ? emit_splat(e, base, n) : base, "");
  if (!each && !mask) {
    LLVMValueRef last = LLVMBuildAdd(B, off, emit_i64(e, (n - 1) * size), "");
    LLVMValueRef before = icmp(e, LLVMIntUGE, off, limit);
    LLVMValueRef behind = icmp(e, LLVMIntUGE, last, limit);
    leave_if(e, buf, LLVMBuildOr(B, before, behind, ""), sel(e, before, off, last));
    return;
  }
  if (!each) {
    LLVMValueRef lane[EMIT_LANES];
    for (int i = 0; i < n; i++) lane[i] = emit_i64(e, i * size);
    off = LLVMBuildAdd(B, emit_splat(e, off, n), LLVMConstVector(lane, (unsigned)n), "");
  }
  LLVMValueRef bad = icmp(e, LLVMIntUGE, off, emit_splat(e, limit, n));
  leave_if(e, buf, mask ? LLVMBuildAnd(B, bad, mask, "") : bad, off);
}
