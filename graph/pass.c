/* The passes of this layer by name: one graph in, one graph out, verified. */
#include <string.h>

#include "graph/ir.h"

static Graph *same(Arena *a, const Graph *g) {
  return gr_clone(a, g);
}

const GrPass gr_passes[] = {
    {"verify", same, "tests every invariant and changes nothing"},
    {"dce", gr_dce, "drops what no output and no effect needs"},
    {"cse", gr_cse, "merges nodes that compute the same"},
    {"fold", gr_fold, "computes constants and drops what changes nothing"},
    {NULL, NULL, NULL},
};

Graph *gr_pass(Arena *a, const char *name, const Graph *g, GErr *e) {
  const GrPass *p = gr_passes;
  while (p->name && strcmp(p->name, name)) p++;
  if (!p->name) {
    gerr_set(e, ERR_IR_FORM, -1, "there is no pass `%s`", name);
    return NULL;
  }
  if (!gr_verify(g, e)) return NULL;
  Graph *d = p->run(a, g);
  return gr_verify(d, e) ? d : NULL;
}
