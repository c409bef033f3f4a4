/* Structure of a graph as one number, and equality: both go through the plain text form, in which
 * provenance, names and alias classes do not appear and symbols are numbered by their order. */
#include <string.h>
#include <xxhash.h>

#include "graph/copy.h"

static Buf plain(const Graph *g) {
  Buf b;
  buf_init_arena(&b, g->arena);
  print_plain(&b, g);
  return b;
}

uint64_t gr_hash(const Graph *g) {
  Buf b = plain(g);
  return XXH3_64bits(b.s, b.n);
}

bool gr_equal(const Graph *a, const Graph *b) {
  if (a == b) return true;
  if (a->node_count != b->node_count || a->output_count != b->output_count) return false;
  Buf x = plain(a), y = plain(b);
  return x.n == y.n && !memcmp(x.s, y.s, x.n);
}
