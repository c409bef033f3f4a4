/* Hash and equality of graphs. Both use the plain text form, which leaves out provenance, names and
 * alias classes and numbers symbols by their order. */
#include <string.h>
#include <xxhash.h>

#include "graph/copy.h"
#include "graph/pass.h"

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
