/* Counters of a session, by name: what ran, what is alive, where time went.
 *
 * In: a name. Out: its number now, for counter(name) of programs and ckl_counter of hosts.
 */
#include <string.h>

#include "lang/compile/compile.h"
#include "lang/compile/counter.h"
#include "lang/compile/pipeline.h"
#include "lang/compile/report.h"
#include "lang/compile/tiering.h"
#include "lang/value/handle.h"

static const char *const counters[] = {"nodes",
                                       "stage",
                                       "compile",
                                       "values.live",
                                       "tape.live",
                                       "bytes.live",
                                       "bytes.peak",
                                       "data.live",
                                       "data.peak",
                                       "sim.live",
                                       "sim.peak",
                                       "spill.live",
                                       "spill.peak",
                                       "line",
                                       "seed",
                                       "jit.kernels",
                                       "jit.runs",
                                       "jit.copied",
                                       "jit.by_node",
                                       "jit.reruns",
                                       "jit.plans",
                                       "jit.loaded",
                                       "jit.installed",
                                       "jit.from_disk",
                                       "jit.generated",
                                       "jit.failed",
                                       "us.code",
                                       "offload.us",
                                       "offload.wait",
                                       "offload.bytes",
                                       "backward.captures",
                                       "backward.hits",
                                       "searched",
#define OPCLASS(NAME, word, of, doc) of("forward." word, )
#include "lang/names/clauses.def"
                                       "forward.move",
#define OPCLASS(NAME, word, of, doc) of("backward." word, )
#include "lang/names/clauses.def"
                                       "backward.move"};

static int64_t microseconds(double seconds) {
  return (int64_t)(1e6 * seconds);
}

/* Times of passes come before the other counters. */
static PassId nth_timed(size_t *i) {
  PassId id = 0;
  while (id < PASS_COUNT && (!pass_is_timed(id) || (*i)-- > 0)) id++;
  return id;
}

static double pass_seconds(const Session *s, PassId id, const JitCount *jit) {
  return id == PASS_PLAN ? jit->plan_seconds : s->count.seconds[id];
}

int64_t counter_read(const Session *s, const char *name) {
  JitCount jit;
  EngCount eng;
  native_counts(s, &jit, &eng);
  int64_t v[] = {s->count.nodes,
                 s->count.stage,
                 s->count.compile,
                 s->count.values_live,
                 s->count.tape_live,
                 (int64_t)s->mem.live,
                 (int64_t)s->mem.peak,
                 (int64_t)s->mem.data_live[DEV_CPU],
                 (int64_t)s->mem.data_peak[DEV_CPU],
                 (int64_t)s->mem.data_live[DEV_SIM],
                 (int64_t)s->mem.data_peak[DEV_SIM],
                 (int64_t)s->mem.data_live[DEV_SPILL],
                 (int64_t)s->mem.data_peak[DEV_SPILL],
                 s->count.line,
                 (int64_t)s->seed,
                 jit.kernels,
                 jit.runs,
                 jit.copied,
                 jit.steps_ref,
                 jit.reruns,
                 jit.plans,
                 eng.loaded,
                 eng.installed,
                 eng.from_disk,
                 eng.generated,
                 eng.failed,
                 microseconds(jit.code_seconds),
                 microseconds(jit.move_seconds),
                 microseconds(jit.wait_seconds),
                 jit.moved,
                 s->count.backward_captures,
                 s->count.backward_hits,
                 s->count.searched,
#define OPCLASS(NAME, word, of, doc) of(s->count.ops[0][BIN_##NAME], )
#include "lang/names/clauses.def"
                 s->count.ops[0][BIN_MOVE],
#define OPCLASS(NAME, word, of, doc) of(s->count.ops[1][BIN_##NAME], )
#include "lang/names/clauses.def"
                 s->count.ops[1][BIN_MOVE]};
  for (PassId id = 0; id < PASS_COUNT; id++)
    if (pass_is_timed(id) && !strcmp(passes[id].clock, name))
      return microseconds(pass_seconds(s, id, &jit));
  for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
    if (!strcmp(counters[i], name)) return v[i];
  return -1;
}

int64_t ckl_counter(const ckl_session *k, const char *name) {
  return counter_read(&k->s, name);
}
const char *ckl_counter_name(size_t i) {
  PassId id = nth_timed(&i);
  if (id < PASS_COUNT) return passes[id].clock;
  return i < sizeof counters / sizeof *counters ? counters[i] : NULL;
}
