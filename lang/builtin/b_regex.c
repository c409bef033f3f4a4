/* Builtins of regular expressions: re_find, re_all, re_replace, re_split.
 *
 * In: a text and a pattern in the syntax of PCRE2, by code points and the classes of Unicode. Out:
 * matches, which are records (text, at, groups), with `names` if groups of the pattern have names;
 * texts; lists. Patterns are compiled once and kept
 * in the session, the last used ones. All matches of a call are found before anything else runs, so
 * a function that re_replace calls may use the same pattern. Memory is that of the session; a match
 * that takes too many steps, or too much memory, is an error.
 */
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/call.h"
#include "lang/eval/steps.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/repr.h"
#include "lang/value/texts.h"
#include "runtime/lru.h"

enum {
  KEPT = 64,                 /* compiled patterns */
  MATCH_STEPS = 10000000,    /* of one match: about half a second */
  MATCH_KIB = 256 * 1024,    /* of backtracking */
  PATTERN_MOST = 1024 * 1024 /* bytes of a pattern */
};

typedef struct Regex {
  LruEntry lru;
  Session *s;
  pcre2_code *code;
  pcre2_match_data *found;
  uint32_t groups;
  size_t n;
  char text[]; /* the pattern */
} Regex;

struct Regexes {
  Lru kept;
  pcre2_general_context *general;
  pcre2_compile_context *compile;
  pcre2_match_context *match;
  Regex *fresh; /* compiled, not kept yet: memory may run out between the two */
};

/* ---- memory of PCRE2: it frees without sizes, so each block begins with its own */

enum { HEAD = 16 };

static void *take(size_t n, void *ud) {
  Session *s = ud;
  char *p = n < SIZE_MAX - HEAD ? mem_try(&s->mem, NULL, 0, n + HEAD) : NULL;
  if (!p) return NULL;
  memcpy(p, &n, sizeof n);
  return p + HEAD;
}

static void give(void *block, void *ud) {
  Session *s = ud;
  size_t n;
  if (!block) return;
  char *p = (char *)block - HEAD;
  memcpy(&n, p, sizeof n);
  mem_free(&s->mem, p, n + HEAD);
}

/* ---- compiled patterns */

static void drop(Regex *r) {
  pcre2_match_data_free(r->found);
  pcre2_code_free(r->code);
  mem_free(&r->s->mem, r, sizeof *r + r->n);
}

void bi_regexes_free(Session *s) {
  struct Regexes *all = s->regexes;
  if (!all) return;
  if (all->fresh) drop(all->fresh);
  while (all->kept.oldest) {
    Regex *r = (Regex *)all->kept.oldest;
    lru_take(&all->kept, &r->lru);
    drop(r);
  }
  lru_close(&all->kept);
  pcre2_match_context_free(all->match);
  pcre2_compile_context_free(all->compile);
  pcre2_general_context_free(all->general);
  mem_free(&s->mem, all, sizeof *all);
  s->regexes = NULL;
}

static struct Regexes *regexes(Session *s) {
  if (s->regexes) return s->regexes;
  struct Regexes *all = mem_need(&s->mem, NULL, 0, sizeof *all);
  *all = (struct Regexes){.kept = {.by_key = {.mem = &s->mem}}};
  s->regexes = all;
  all->general = pcre2_general_context_create(take, give, s);
  all->compile = all->general ? pcre2_compile_context_create(all->general) : NULL;
  all->match = all->general ? pcre2_match_context_create(all->general) : NULL;
  if (!all->compile || !all->match) {
    bi_regexes_free(s);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  pcre2_set_newline(all->compile, PCRE2_NEWLINE_LF);
  pcre2_set_bsr(all->compile, PCRE2_BSR_UNICODE);
  pcre2_set_max_pattern_length(all->compile, PATTERN_MOST);
  pcre2_set_match_limit(all->match, MATCH_STEPS);
  pcre2_set_heap_limit(all->match, MATCH_KIB);
  return all;
}

/* The place of byte `at` of argument i, if the argument stands in the source as it is; else all of
 * the argument. */
static Span place_in(const Call *c, int i, size_t at, bool *exact) {
  Span sp = c->spans[i];
  *exact = false;
  for (uint32_t k = 0; c->node && k < c->node->call.args.count; k++) {
    const Node *a = c->node->call.args.items[k], *v = a->arg.value;
    bool this = (a->span.lo == sp.lo && a->span.hi == sp.hi) || v->span.lo == sp.lo;
    uint32_t from = this ? ast_text_place(v) : 0;
    if (!from) continue;
    size_t n = c->v[i].u.str->n;
    *exact = true;
    sp.lo = from + (uint32_t)(at < n ? at : n);
    uint32_t cp;
    sp.hi = sp.lo + (at < n ? (uint32_t)str_utf8(c->v[i].u.str->s + at, n - at, &cp) : 1);
  }
  return sp;
}

/* An error at byte `at` of the text that argument i is. */
static _Noreturn void misspelt(Session *s, const Call *c, int i, size_t at, const char *why) {
  bool exact;
  const StrObj *t = c->v[i].u.str;
  Span sp = place_in(c, i, at, &exact);
  if (exact) fail_at(s, ERR_TEXT_PATTERN, sp, "%s", why);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  repr_text(&b, t);
  if (at > t->n) at = t->n;
  fail_at(s, ERR_TEXT_PATTERN, sp, "%s, at code point %zu of %s", why, text_chars(t->s, at), b.s);
}

static const char *message(Session *s, int code) {
  char *text = ARENA_ARRAY(&s->scratch, char, 256);
  if (pcre2_get_error_message(code, (PCRE2_UCHAR *)text, 256) < 0) return "it is not well formed";
  return text;
}

/* Whether t looks ahead, or sets options of PCRE2 itself. PCRE2 10.42 takes the first byte of what
 * is looked at for one that the match has, and finds no b by (?=b)(?:a(c))*?b, unless it does
 * without this way to skip. */
static bool looks_ahead(const char *t, size_t n) {
  for (size_t i = 0; i + 2 < n; i++)
    if (t[i] == '(' && (t[i + 1] == '*' || (t[i + 1] == '?' && t[i + 2] == '='))) return true;
  return false;
}

/* Argument 1 as a compiled pattern. */
static Regex *pattern(Session *s, Call *c) {
  const StrObj *t = arg_text(s, c, 1);
  struct Regexes *all = regexes(s);
  uint64_t key = XXH3_64bits(t->s, t->n);
  for (LruEntry *e = lru_first(&all->kept, key); e; e = e->alike) {
    Regex *r = (Regex *)e;
    if (r->n != t->n || memcmp(r->text, t->s, t->n)) continue;
    lru_use(&all->kept, e);
    return r;
  }
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C;
  if (looks_ahead(t->s, t->n)) options |= PCRE2_NO_START_OPTIMIZE;
  int code;
  PCRE2_SIZE at;
  pcre2_code *p = pcre2_compile((PCRE2_SPTR)t->s, t->n, options, &code, &at, all->compile);
  if (!p && code == PCRE2_ERROR_HEAP_FAILED) mem_throw(&s->mem, MEM_ERR_NOMEM);
  if (!p) misspelt(s, c, 1, at, fail_text(s, "this is no pattern: %s", message(s, code)));
  pcre2_match_data *found = pcre2_match_data_create_from_pattern(p, all->general);
  Regex *r = found ? mem_try(&s->mem, NULL, 0, sizeof *r + t->n) : NULL;
  if (!r) {
    pcre2_match_data_free(found);
    pcre2_code_free(p);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  *r = (Regex){.s = s, .code = p, .found = found, .n = t->n};
  memcpy(r->text, t->s, t->n);
  pcre2_pattern_info(p, PCRE2_INFO_CAPTURECOUNT, &r->groups);
  Regex *old = all->kept.count >= KEPT ? (Regex *)all->kept.oldest : NULL;
  if (old) {
    lru_take(&all->kept, &old->lru);
    drop(old);
  }
  if (all->fresh) drop(all->fresh);
  all->fresh = r;
  lru_add(&all->kept, &r->lru, key, 0);
  all->fresh = NULL;
  return r;
}

/* ---- matches */

/* Matches in a text, as places of bytes: of match i of group g from at(i, g)[0] to [1]. */
typedef struct Matches {
  const StrObj *t;
  size_t count, width; /* width: numbers of a match */
  size_t *places, place_count, place_cap;
  const pcre2_code *code;
  uint32_t groups, named; /* named: rows of the table of names */
} Matches;

static const size_t *at(const Matches *m, size_t i, uint32_t group) {
  return m->places + i * m->width + 2 * (size_t)group;
}

/* The matches from byte `from` on, `most` at most, from left to right; none overlaps another. An
 * empty one may stand where another one ends, but not where an empty one stands. */
static Matches matches(Session *s, Call *c, size_t from, size_t most) {
  Regex *r = pattern(s, c);
  Matches m = {.t = arg_text(s, c, 0),
               .code = r->code,
               .width = 2 * ((size_t)r->groups + 1),
               .groups = r->groups};
  pcre2_pattern_info(r->code, PCRE2_INFO_NAMECOUNT, &m.named);
  uint32_t options = PCRE2_NO_UTF_CHECK;
  for (; m.count < most; m.count++) {
    count_step(s, c->at);
    int rc = pcre2_match(r->code, (PCRE2_SPTR)m.t->s, m.t->n, from, options, r->found,
                         s->regexes->match);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc == PCRE2_ERROR_NOMEMORY) mem_throw(&s->mem, MEM_ERR_NOMEM);
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT)
      fail_help(s, ERR_TEXT_LIMIT, c->spans[1],
                "repetitions inside repetitions, as in (a+)+, try everything; `(?>..)` and `a++` "
                "never go back",
                "this pattern takes too long");
    if (rc < 0) misspelt(s, c, 1, 0, fail_text(s, "this pattern fails: %s", message(s, rc)));
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(r->found);
    for (size_t k = 0; k < m.width; k++)
      VEC_PUSH(&s->scratch, m.places, m.place_count, m.place_cap, v[k]);
    from = v[1];
    options = PCRE2_NO_UTF_CHECK | (v[0] == v[1] ? PCRE2_NOTEMPTY_ATSTART : 0);
  }
  return m;
}

/* What group g of match i matched: a text, or none where it took no part. */
static Value group_text(Session *s, const Matches *m, size_t i, uint32_t g) {
  const size_t *p = at(m, i, g);
  return p[0] == PCRE2_UNSET ? v_none() : v_str(s, m->t->s + p[0], p[1] - p[0]);
}

/* What the named groups of match i matched, by name, in the order of the groups. Of several groups
 * with one name the one that took part counts. */
static Value named_groups(Session *s, const Matches *m, size_t i) {
  const unsigned char *table;
  uint32_t size;
  pcre2_pattern_info(m->code, PCRE2_INFO_NAMETABLE, &table);
  pcre2_pattern_info(m->code, PCRE2_INFO_NAMEENTRYSIZE, &size);
  Value d = v_dict_room(s, m->named);
  for (uint32_t g = 1; g <= m->groups; g++) /* the table is sorted by name */
    for (uint32_t k = 0; k < m->named; k++) {
      const unsigned char *row = table + (size_t)k * size; /* two bytes of the number, the name */
      if ((uint32_t)(row[0] << 8 | row[1]) != g) continue;
      const char *name = (const char *)row + 2;
      Value key = v_str(s, name, strlen(name)), text = group_text(s, m, i, g);
      if (text.tag != V_NONE || !dict_find(d.u.dict, key)) dict_put(s, d.u.dict, key, text);
    }
  return d;
}

/* Match i as a record. *byte and *chars: a place before it, and how many code points are before
 * that; moved on to the match. */
static Value match_value(Session *s, const Matches *m, size_t i, size_t *byte, size_t *chars) {
  Value *groups = ARENA_ARRAY(&s->scratch, Value, m->groups + 1);
  for (uint32_t g = 1; g <= m->groups; g++) groups[g - 1] = group_text(s, m, i, g);
  size_t start = at(m, i, 0)[0];
  *chars += text_chars(m->t->s + *byte, start - *byte);
  *byte = start;
  Name names[4] = {names_of(s->names, "text"), names_of(s->names, "at"),
                   names_of(s->names, "groups"), names_of(s->names, "names")};
  Value items[4] = {group_text(s, m, i, 0), v_int((int64_t)*chars),
                    v_list(s, V_LIST, m->groups, groups)};
  if (m->named) items[3] = named_groups(s, m, i);
  return v_record(s, m->named ? 4 : 3, names, items);
}

BUILTIN_FN(bi_re_find) {
  const StrObj *t = arg_text(s, c, 0);
  int64_t from = want_int(s, c->v[2], c->spans[2], "`from`");
  if (from < 0 || from > (int64_t)t->chars)
    fail_at(s, ERR_VALUE, c->spans[2], "`from` lies between 0 and %zu, the length, this is %lld",
            t->chars, (long long)from);
  size_t byte = (size_t)(text_at(t, from) - t->s), chars = (size_t)from;
  Matches m = matches(s, c, byte, 1);
  return m.count ? match_value(s, &m, 0, &byte, &chars) : v_none();
}

BUILTIN_FN(bi_re_all) {
  Matches m = matches(s, c, 0, SIZE_MAX);
  Value *items = ARENA_ARRAY(&s->scratch, Value, m.count + 1);
  size_t byte = 0, chars = 0;
  for (size_t i = 0; i < m.count; i++) items[i] = match_value(s, &m, i, &byte, &chars);
  return v_list(s, V_LIST, m.count, items);
}

BUILTIN_FN(bi_re_split) {
  Matches m = matches(s, c, 0, SIZE_MAX);
  Value *items = ARENA_ARRAY(&s->scratch, Value, m.count + 1);
  size_t lo = 0;
  for (size_t i = 0; i <= m.count; i++) {
    const size_t *p = i < m.count ? at(&m, i, 0) : NULL;
    items[i] = v_str(s, m.t->s + lo, (p ? p[0] : m.t->n) - lo);
    if (p) lo = p[1];
  }
  return v_list(s, V_LIST, m.count + 1, items);
}

/* PCRE2's version comes with a date. */
void bi_libraries(Buf *out) {
  char pcre2[64] = "";
  pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
  pcre2[strcspn(pcre2, " ")] = 0;
  buf_printf(out, "PCRE2 %s, utf8proc %s (Unicode %s)", pcre2, utf8proc_version(),
             utf8proc_unicode_version());
}

/* ---- replacements */

/* A piece of the text that replaces matches: text, or a group. */
typedef struct Piece {
  size_t lo, hi;
  uint32_t group; /* of text: NO_GROUP */
} Piece;
enum { NO_GROUP = UINT32_MAX };
typedef struct Pieces {
  Piece *items;
  size_t count, cap;
} Pieces;

/* The group that is named at byte i of argument 2, behind its `\\`; *end: where it ends. */
static uint32_t reference(Session *s, Call *c, const Matches *m, size_t i, size_t *end) {
  const StrObj *t = c->v[2].u.str;
  size_t k = i;
  uint32_t g = 0;
  bool named = i + 1 < t->n && t->s[i] == 'g' && t->s[i + 1] == '<';
  if (named) {
    const char *close = memchr(t->s + i, '>', t->n - i);
    if (!close) misspelt(s, c, 2, i - 1, "the `\\g<` of a group ends with `>`");
    size_t lo = i + 2, n = (size_t)(close - t->s) - lo;
    bool digits = n > 0 && n <= 5;
    for (k = lo; k < lo + n; k++) digits = digits && t->s[k] >= '0' && t->s[k] <= '9';
    if (digits) {
      for (k = lo; k < lo + n; k++) g = g * 10 + (uint32_t)(t->s[k] - '0');
    } else {
      const char *name = fail_text(s, "%.*s", (int)n, t->s + lo);
      int number = pcre2_substring_number_from_name(m->code, (PCRE2_SPTR)name);
      if (number < 0) misspelt(s, c, 2, lo, fail_text(s, "the pattern has no group `%s`", name));
      g = (uint32_t)number;
    }
    k = (size_t)(close - t->s) + 1;
  } else {
    for (; k < t->n && k < i + 2 && t->s[k] >= '0' && t->s[k] <= '9'; k++)
      g = g * 10 + (uint32_t)(t->s[k] - '0');
    if (k == i)
      misspelt(s, c, 2, i - 1,
               "behind `\\` stands a group, as in r\"\\1\" or r\"\\g<name>\"; itself is `\\\\`");
  }
  if (g > m->groups)
    misspelt(s, c, 2, i - 1,
             fail_text(s, "the pattern has %u group%s, not %u", (unsigned)m->groups,
                       m->groups == 1 ? "" : "s", (unsigned)g));
  *end = k;
  return g;
}

/* Argument 2, a text, taken apart. */
static Pieces template(Session *s, Call *c, const Matches *m) {
  const StrObj *t = c->v[2].u.str;
  Pieces p = {0};
  size_t lo = 0;
  for (size_t i = 0; i <= t->n; i++) {
    if (i < t->n && t->s[i] != '\\') continue;
    if (i > lo) VEC_PUSH(&s->scratch, p.items, p.count, p.cap, ((Piece){lo, i, NO_GROUP}));
    if (i == t->n) break;
    if (i + 1 < t->n && t->s[i + 1] == '\\') { /* the second one is text */
      lo = ++i;
      continue;
    }
    uint32_t g = reference(s, c, m, i + 1, &lo);
    VEC_PUSH(&s->scratch, p.items, p.count, p.cap, ((Piece){0, 0, g}));
    i = lo - 1;
  }
  return p;
}

BUILTIN_FN(bi_re_replace) {
  Matches m = matches(s, c, 0, SIZE_MAX);
  Value with = c->v[2];
  if (with.tag != V_STR && with.tag != V_FN && with.tag != V_BUILTIN)
    fail_at(s, ERR_WANT_STR, c->spans[2],
            "a match is replaced by a str, or by what a function of it gives, not by %s",
            value_type_text(s, with));
  Pieces pieces = with.tag == V_STR ? template(s, c, &m) : (Pieces){0};
  if (!m.count) return c->v[0];
  Buf b;
  buf_init_arena(&b, &s->scratch);
  size_t lo = 0, byte = 0, chars = 0;
  for (size_t i = 0; i < m.count; i++) {
    const size_t *p = at(&m, i, 0);
    buf_put(&b, m.t->s + lo, p[0] - lo);
    lo = p[1];
    for (size_t k = 0; k < pieces.count; k++) {
      Piece x = pieces.items[k];
      const size_t *g = x.group == NO_GROUP ? NULL : at(&m, i, x.group);
      if (!g)
        buf_put(&b, with.u.str->s + x.lo, x.hi - x.lo);
      else if (g[0] != PCRE2_UNSET)
        buf_put(&b, m.t->s + g[0], g[1] - g[0]);
    }
    if (with.tag == V_STR) continue;
    Value match = match_value(s, &m, i, &byte, &chars);
    Value new = call_simple(s, with, 1, &match, c->at);
    if (new.tag == V_UNKNOWN) return new;
    if (new.tag != V_STR)
      fail_at(s, ERR_WANT_STR, c->spans[2], "the function gives a str for a match, this is %s",
              value_type_text(s, new));
    buf_put(&b, new.u.str->s, new.u.str->n);
  }
  buf_put(&b, m.t->s + lo, m.t->n - lo);
  return v_str(s, b.n ? b.s : "", b.n);
}
