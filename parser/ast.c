/* The syntax tree: walking, comparing, printing as nested parentheses.
 *
 * In: nodes made by the grammar's actions. Out: nothing is changed here. Idea: only
 * `ast_children` knows where the children of a node are; height and whole-tree passes use it.
 * Invariant: children are visited in the order of the source. */
#include "parser/ast.h"

#include <string.h>

static const char *const kind_names[N_KIND_COUNT] = {
    [N_BAD] = "bad",
    [N_FILE] = "file",
    [N_USE] = "use",
    [N_TYPE_DECL] = "type",
    [N_POLICY_DECL] = "policy",
    [N_TEST] = "test",
    [N_MODEL] = "model",
    [N_FIELD] = "field",
    [N_FN] = "fn",
    [N_PARAM] = "param",
    [N_LET] = "let",
    [N_ASSIGN] = "assign",
    [N_EXPR_STMT] = "do",
    [N_FOR] = "for",
    [N_WHILE] = "while",
    [N_RETURN] = "return",
    [N_BREAK] = "break",
    [N_CONTINUE] = "continue",
    [N_ASSERT] = "assert",
    [N_PAT_NAME] = "pat",
    [N_PAT_WILD] = "_",
    [N_PAT_TUPLE] = "pat-tuple",
    [N_PAT_RECORD] = "pat-record",
    [N_INT] = "int",
    [N_FLOAT] = "float",
    [N_SIZE] = "size",
    [N_STRING] = "string",
    [N_BOOL] = "bool",
    [N_NAME] = "name",
    [N_SELF] = "self",
    [N_PLACE] = "place",
    [N_UNIT] = "unit",
    [N_UNARY] = "unary",
    [N_BINARY] = "binary",
    [N_CALL] = "call",
    [N_ARG] = "arg",
    [N_DOT] = "dot",
    [N_ITEM] = "item",
    [N_INDEX] = "index",
    [N_ELLIPSIS] = "ellipsis",
    [N_SLICE] = "slice",
    [N_BLOCK] = "block",
    [N_IF] = "if",
    [N_TUPLE] = "tuple",
    [N_RECORD] = "record",
    [N_LIST] = "list",
    [N_DICT] = "dict",
    [N_ENTRY] = "entry",
    [N_COMP] = "comp",
    [N_COMP_FOR] = "in",
    [N_LAMBDA] = "lambda",
    [N_CHECKPOINT] = "checkpoint",
    [N_WRAP] = "wrap",
    [N_CLAUSE] = "clause",
    [N_WORD] = "word",
    [N_TYPE_NAME] = "type-name",
    [N_TYPE_LIST] = "type-list",
    [N_TYPE_DICT] = "type-dict",
    [N_TYPE_TUPLE] = "type-tuple",
    [N_TYPE_RECORD] = "type-record",
    [N_TYPE_FIELD] = "type-field",
    [N_TYPE_FN] = "type-fn",
    [N_PACK] = "pack",
};

const char *ast_kind_name(NodeKind kind) {
  return (unsigned)kind < N_KIND_COUNT ? kind_names[kind] : "?";
}

const char *ast_op_text(AstOp op) {
  static const char *const text[] = {
      [AST_NONE] = "=",   [AST_OR] = "or",       [AST_AND] = "and",  [AST_NOT] = "not",
      [AST_LT] = "<",     [AST_LE] = "<=",       [AST_GT] = ">",     [AST_GE] = ">=",
      [AST_EQ] = "==",    [AST_NE] = "!=",       [AST_IN] = "in",    [AST_NOT_IN] = "not in",
      [AST_RANGE] = "..", [AST_ADD] = "+",       [AST_SUB] = "-",    [AST_MUL] = "*",
      [AST_DIV] = "/",    [AST_FLOORDIV] = "//", [AST_MOD] = "%",    [AST_MATMUL] = "@",
      [AST_NEG] = "-",    [AST_POW] = "**",      [AST_UPDATE] = ".",
  };
  return (unsigned)op < sizeof text / sizeof *text ? text[op] : "?";
}

bool ast_is_expr(const Node *n) {
  return (n->kind >= N_INT && n->kind <= N_WRAP && n->kind != N_ARG && n->kind != N_ELLIPSIS &&
          n->kind != N_SLICE && n->kind != N_ENTRY && n->kind != N_COMP_FOR) ||
         n->kind == N_BAD;
}

Span span_join(Span a, Span b) {
  if (a.lo > b.lo) a.lo = b.lo;
  if (a.hi < b.hi) a.hi = b.hi;
  return a;
}

const Node *ast_places(const Node *st) {
  const Node *b = st->kind == N_EXPR_STMT && st->expr->kind == N_BLOCK ? st->expr : NULL;
  const Node *let = b && b->list.count ? b->list.items[0] : NULL;
  return let && let->kind == N_LET && let->let.places ? let : NULL;
}

const char *ast_plain_text(const Node *n, uint32_t *len) {
  *len = 0;
  if (n->kind != N_STRING || n->string.count > 1) return NULL;
  if (n->string.count == 0) return "";
  if (n->string.items[0].hole) return NULL;
  *len = n->string.items[0].length;
  return n->string.items[0].text;
}

uint32_t ast_text_place(const Node *n) {
  uint32_t length;
  if (!ast_plain_text(n, &length)) return 0;
  const StrParts *p = &n->string;
  uint32_t around = p->raw ? 3 : 2; /* quotes, and the `r` */
  return !p->block && p->hi - p->lo == length + around ? p->lo + around - 1 : 0;
}

/* ---- children */

typedef void Visit(void *ud, Node *child);

static void each(NodeList l, Visit *f, void *ud) {
  for (uint32_t i = 0; i < l.count; i++) f(ud, l.items[i]);
}

static void one(Node *n, Visit *f, void *ud) {
  if (n) f(ud, n);
}

static void each_of_fn(const Fn *fn, Visit *f, void *ud) {
  each(fn->params, f, ud);
  one(fn->result, f, ud);
  one(fn->body, f, ud);
  each(fn->back_params, f, ud);
  one(fn->back_body, f, ud);
}

void ast_children(const Node *n, Visit *f, void *ud) {
  switch ((NodeKind)n->kind) {
  case N_FILE: each(n->file.items, f, ud); break;
  case N_TYPE_DECL: one(n->type_decl.type, f, ud); break;
  case N_POLICY_DECL:
    each(n->policy_decl.params, f, ud);
    each(n->policy_decl.clauses, f, ud);
    break;
  case N_TEST:
    one(n->test.title, f, ud);
    one(n->test.body, f, ud);
    break;
  case N_MODEL:
    each(n->model.params, f, ud);
    each(n->model.members, f, ud);
    break;
  case N_FIELD:
    one(n->field.type, f, ud);
    one(n->field.init, f, ud);
    break;
  case N_FN:
  case N_LAMBDA: each_of_fn(n->fn, f, ud); break;
  case N_PARAM:
    one(n->param.type, f, ud);
    one(n->param.init, f, ud);
    break;
  case N_LET:
    one(n->let.pat, f, ud);
    one(n->let.type, f, ud);
    one(n->let.init, f, ud);
    break;
  case N_ASSIGN:
    one(n->assign.target, f, ud);
    one(n->assign.value, f, ud);
    break;
  case N_EXPR_STMT:
  case N_RETURN:
  case N_ASSERT: one(n->expr, f, ud); break;
  case N_FOR:
  case N_WHILE:
  case N_COMP_FOR:
    each(n->loop.clauses, f, ud);
    one(n->loop.pat, f, ud);
    one(n->loop.iter, f, ud);
    one(n->loop.cond, f, ud);
    one(n->loop.body, f, ud);
    break;
  case N_PAT_TUPLE:
  case N_PAT_RECORD:
  case N_BLOCK:
  case N_TUPLE:
  case N_RECORD:
  case N_LIST:
  case N_DICT:
  case N_TYPE_TUPLE:
  case N_TYPE_RECORD: each(n->list, f, ud); break;
  case N_STRING:
    for (uint32_t i = 0; i < n->string.count; i++) one(n->string.items[i].hole, f, ud);
    break;
  case N_UNARY: one(n->unary.operand, f, ud); break;
  case N_BINARY:
    one(n->binary.left, f, ud);
    one(n->binary.right, f, ud);
    break;
  case N_CALL:
    one(n->call.callee, f, ud);
    each(n->call.args, f, ud);
    break;
  case N_ARG: one(n->arg.value, f, ud); break;
  case N_DOT: one(n->dot.object, f, ud); break;
  case N_ITEM: one(n->item.object, f, ud); break;
  case N_INDEX:
    one(n->index.object, f, ud);
    each(n->index.items, f, ud);
    break;
  case N_SLICE:
    one(n->slice.lo, f, ud);
    one(n->slice.hi, f, ud);
    one(n->slice.step, f, ud);
    break;
  case N_IF:
    one(n->if_.cond, f, ud);
    one(n->if_.then, f, ud);
    one(n->if_.els, f, ud);
    break;
  case N_ENTRY:
  case N_TYPE_DICT:
    one(n->entry.key, f, ud);
    one(n->entry.value, f, ud);
    break;
  case N_COMP:
    one(n->comp.value, f, ud);
    each(n->comp.fors, f, ud);
    break;
  case N_CHECKPOINT:
  case N_WRAP:
    each(n->region.clauses, f, ud);
    one(n->region.body, f, ud);
    break;
  case N_CLAUSE: each(n->clause.args, f, ud); break;
  case N_TYPE_NAME: each(n->type_name.dims, f, ud); break;
  case N_TYPE_LIST: one(n->type_list, f, ud); break;
  case N_TYPE_FIELD: one(n->type_field.type, f, ud); break;
  case N_TYPE_FN:
    each(n->type_fn.params, f, ud);
    one(n->type_fn.result, f, ud);
    break;
  case N_BAD:
  case N_USE:
  case N_BREAK:
  case N_CONTINUE:
  case N_PAT_NAME:
  case N_PAT_WILD:
  case N_INT:
  case N_FLOAT:
  case N_SIZE:
  case N_BOOL:
  case N_NAME:
  case N_SELF:
  case N_PLACE:
  case N_UNIT:
  case N_ELLIPSIS:
  case N_WORD:
  case N_PACK:
  case N_KIND_COUNT: break;
  }
}

/* ---- equality */

static bool same_list(NodeList a, NodeList b) {
  if (a.count != b.count) return false;
  for (uint32_t i = 0; i < a.count; i++)
    if (!ast_equal(a.items[i], b.items[i])) return false;
  return true;
}

/* Names may come from two tables, so texts are compared. */
static bool same_name(Name a, Name b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_word(Word a, Word b) {
  return same_name(a.name, b.name);
}

static bool same_words(Words a, Words b) {
  if (a.count != b.count) return false;
  for (uint32_t i = 0; i < a.count; i++)
    if (!same_word(a.items[i], b.items[i])) return false;
  return true;
}

static bool same_fn(const Fn *a, const Fn *b) {
  return same_word(a->name, b->name) && a->is_proc == b->is_proc && same_words(a->dims, b->dims) &&
         same_list(a->params, b->params) && ast_equal(a->result, b->result) &&
         a->body_is_expr == b->body_is_expr && ast_equal(a->body, b->body) &&
         same_list(a->back_params, b->back_params) && a->back_is_expr == b->back_is_expr &&
         ast_equal(a->back_body, b->back_body);
}

static bool same_format(Format a, Format b) {
  return a.align == b.align && a.plus == b.plus && a.zero == b.zero && a.comma == b.comma &&
         a.width == b.width && a.digits == b.digits && a.kind == b.kind;
}

static bool same_string(const StrParts *a, const StrParts *b) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++) {
    const StrPart *x = &a->items[i], *y = &b->items[i];
    if (!ast_equal(x->hole, y->hole)) return false;
    if (x->has_format != y->has_format) return false;
    if (x->has_format && !same_format(x->format, y->format)) return false;
    if (!x->hole && (x->length != y->length || memcmp(x->text, y->text, x->length) != 0))
      return false;
  }
  return true;
}

bool ast_equal(const Node *a, const Node *b) {
  stack_check();
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->height != b->height) return false;
  switch ((NodeKind)a->kind) {
  case N_FILE: return same_list(a->file.items, b->file.items);
  case N_USE:
    return same_words(a->use.path, b->use.path) && same_name(a->use.file, b->use.file) &&
           same_word(a->use.as, b->use.as) && same_words(a->use.names, b->use.names);
  case N_TYPE_DECL:
    return same_word(a->type_decl.name, b->type_decl.name) &&
           ast_equal(a->type_decl.type, b->type_decl.type);
  case N_POLICY_DECL:
    return same_word(a->policy_decl.name, b->policy_decl.name) &&
           a->policy_decl.has_params == b->policy_decl.has_params &&
           same_list(a->policy_decl.params, b->policy_decl.params) &&
           same_list(a->policy_decl.clauses, b->policy_decl.clauses);
  case N_TEST:
    return ast_equal(a->test.title, b->test.title) && ast_equal(a->test.body, b->test.body);
  case N_MODEL:
    return same_word(a->model.name, b->model.name) && a->model.has_params == b->model.has_params &&
           same_list(a->model.params, b->model.params) &&
           same_list(a->model.members, b->model.members);
  case N_FIELD:
    return same_word(a->field.name, b->field.name) && a->field.is_buffer == b->field.is_buffer &&
           ast_equal(a->field.type, b->field.type) && ast_equal(a->field.init, b->field.init);
  case N_FN:
  case N_LAMBDA: return same_fn(a->fn, b->fn);
  case N_PARAM:
    return same_word(a->param.name, b->param.name) && ast_equal(a->param.type, b->param.type) &&
           ast_equal(a->param.init, b->param.init);
  case N_LET:
    return a->let.is_var == b->let.is_var && ast_equal(a->let.pat, b->let.pat) &&
           ast_equal(a->let.type, b->let.type) && ast_equal(a->let.init, b->let.init);
  case N_ASSIGN:
    return a->assign.op == b->assign.op && ast_equal(a->assign.target, b->assign.target) &&
           ast_equal(a->assign.value, b->assign.value);
  case N_EXPR_STMT:
  case N_RETURN:
  case N_ASSERT: return ast_equal(a->expr, b->expr);
  case N_FOR:
  case N_WHILE:
  case N_COMP_FOR:
    return a->loop.is_checkpoint == b->loop.is_checkpoint &&
           same_list(a->loop.clauses, b->loop.clauses) && ast_equal(a->loop.pat, b->loop.pat) &&
           ast_equal(a->loop.iter, b->loop.iter) && ast_equal(a->loop.cond, b->loop.cond) &&
           ast_equal(a->loop.body, b->loop.body);
  case N_PAT_NAME:
  case N_PACK: return same_word(a->word, b->word);
  case N_PAT_TUPLE:
  case N_PAT_RECORD:
  case N_BLOCK:
  case N_TUPLE:
  case N_RECORD:
  case N_LIST:
  case N_DICT:
  case N_TYPE_TUPLE:
  case N_TYPE_RECORD: return same_list(a->list, b->list);
  case N_INT:
  case N_SIZE: return a->number.i == b->number.i;
  case N_FLOAT: return memcmp(&a->number.f, &b->number.f, sizeof a->number.f) == 0;
  case N_STRING: return same_string(&a->string, &b->string);
  case N_BOOL: return a->boolean == b->boolean;
  case N_NAME: return same_name(a->name, b->name);
  case N_UNARY: return a->unary.op == b->unary.op && ast_equal(a->unary.operand, b->unary.operand);
  case N_BINARY:
    return a->binary.op == b->binary.op && ast_equal(a->binary.left, b->binary.left) &&
           ast_equal(a->binary.right, b->binary.right);
  case N_CALL:
    return ast_equal(a->call.callee, b->call.callee) && same_list(a->call.args, b->call.args);
  case N_ARG: return same_word(a->arg.name, b->arg.name) && ast_equal(a->arg.value, b->arg.value);
  case N_DOT: return same_word(a->dot.name, b->dot.name) && ast_equal(a->dot.object, b->dot.object);
  case N_ITEM: return a->item.index == b->item.index && ast_equal(a->item.object, b->item.object);
  case N_INDEX:
    return ast_equal(a->index.object, b->index.object) && same_list(a->index.items, b->index.items);
  case N_SLICE:
    return ast_equal(a->slice.lo, b->slice.lo) && ast_equal(a->slice.hi, b->slice.hi) &&
           ast_equal(a->slice.step, b->slice.step);
  case N_IF:
    return ast_equal(a->if_.cond, b->if_.cond) && ast_equal(a->if_.then, b->if_.then) &&
           ast_equal(a->if_.els, b->if_.els);
  case N_ENTRY:
  case N_TYPE_DICT:
    return ast_equal(a->entry.key, b->entry.key) && ast_equal(a->entry.value, b->entry.value);
  case N_COMP:
    return ast_equal(a->comp.value, b->comp.value) && same_list(a->comp.fors, b->comp.fors);
  case N_CHECKPOINT:
  case N_WRAP:
    return a->region.has_policy == b->region.has_policy &&
           same_list(a->region.clauses, b->region.clauses) &&
           ast_equal(a->region.body, b->region.body);
  case N_CLAUSE:
    return a->clause.is_set == b->clause.is_set && same_words(a->clause.path, b->clause.path) &&
           same_list(a->clause.args, b->clause.args) && same_word(a->clause.as, b->clause.as);
  case N_WORD: return same_words(a->path, b->path);
  case N_TYPE_NAME:
    return a->type_name.has_dims == b->type_name.has_dims &&
           same_words(a->type_name.path, b->type_name.path) &&
           same_list(a->type_name.dims, b->type_name.dims);
  case N_TYPE_LIST: return ast_equal(a->type_list, b->type_list);
  case N_TYPE_FIELD:
    return same_word(a->type_field.name, b->type_field.name) &&
           ast_equal(a->type_field.type, b->type_field.type);
  case N_TYPE_FN:
    return same_list(a->type_fn.params, b->type_fn.params) &&
           ast_equal(a->type_fn.result, b->type_fn.result);
  case N_BAD:
  case N_BREAK:
  case N_CONTINUE:
  case N_PAT_WILD:
  case N_SELF:
  case N_PLACE:
  case N_UNIT:
  case N_ELLIPSIS:
  case N_KIND_COUNT: return true;
  }
  return true;
}

/* ---- dump */

static void dump(void *ud, Node *n) {
  Buf *b = ud;
  buf_putc(b, ' ');
  ast_dump(b, n);
}

static void dump_word(Buf *b, Word w) {
  if (w.name) buf_printf(b, " %s", w.name);
}

static void dump_words(Buf *b, Words w, const char *open, const char *between, const char *close) {
  if (!w.count) return;
  buf_puts(b, open);
  for (uint32_t i = 0; i < w.count; i++) {
    if (i) buf_puts(b, between);
    buf_puts(b, w.items[i].name);
  }
  buf_puts(b, close);
}

static void dump_format(Buf *b, const Format *f) {
  buf_putc(b, ':');
  if (f->align) buf_putc(b, f->align);
  if (f->plus) buf_putc(b, '+');
  if (f->zero) buf_putc(b, '0');
  if (f->width) buf_printf(b, "%d", f->width);
  if (f->comma) buf_putc(b, ',');
  if (f->digits >= 0) buf_printf(b, ".%d", f->digits);
  if (f->kind) buf_putc(b, f->kind);
}

static void dump_string(Buf *b, const Node *n) {
  for (uint32_t i = 0; i < n->string.count; i++) {
    const StrPart *p = &n->string.items[i];
    buf_putc(b, ' ');
    if (!p->hole) {
      buf_json(b, p->text, p->length);
      continue;
    }
    buf_puts(b, "(hole ");
    ast_dump(b, p->hole);
    if (p->has_format) {
      buf_putc(b, ' ');
      dump_format(b, &p->format);
    }
    buf_putc(b, ')');
  }
}

/* A child that may be absent. */
static void dump_or(Buf *b, const Node *n) {
  buf_putc(b, ' ');
  if (n)
    ast_dump(b, n);
  else
    buf_putc(b, '-');
}

/* Leaves that print as themselves; false for all others. */
static bool dump_leaf(Buf *b, const Node *n) {
  char text[48];
  switch ((NodeKind)n->kind) {
  case N_INT:
  case N_SIZE: buf_int(b, n->number.i); return true;
  case N_FLOAT:
    str_f64(text, n->number.f);
    buf_puts(b, text);
    return true;
  case N_BOOL: buf_puts(b, n->boolean ? "true" : "false"); return true;
  case N_NAME: buf_puts(b, n->name); return true;
  case N_PAT_NAME: buf_puts(b, n->word.name); return true;
  case N_PAT_WILD: buf_putc(b, '_'); return true;
  case N_SELF: buf_puts(b, "self"); return true;
  case N_PLACE: buf_puts(b, "place"); return true;
  case N_UNIT: buf_puts(b, "()"); return true;
  case N_ELLIPSIS: buf_puts(b, "..."); return true;
  case N_PACK: buf_printf(b, "...%s", n->word.name ? n->word.name : ""); return true;
  case N_WORD: dump_words(b, n->path, "", ".", ""); return true;
  case N_TYPE_NAME:
    if (n->type_name.has_dims) return false;
    dump_words(b, n->type_name.path, "", ".", "");
    return true;
  default: return false;
  }
}

static void dump_fn(Buf *b, const Fn *f) {
  if (f->is_proc) buf_puts(b, " proc");
  dump_word(b, f->name);
  dump_words(b, f->dims, " [", " ", "]");
  each(f->params, dump, b);
  if (f->result) {
    buf_puts(b, " -> ");
    ast_dump(b, f->result);
  }
  buf_puts(b, f->body_is_expr ? " =" : "");
  one(f->body, dump, b);
  if (f->back_body) {
    buf_puts(b, " backward");
    each(f->back_params, dump, b);
    buf_puts(b, f->back_is_expr ? " =" : "");
    one(f->back_body, dump, b);
  }
}

void ast_dump(Buf *b, const Node *n) {
  stack_check();
  if (dump_leaf(b, n)) return;
  buf_putc(b, '(');
  buf_puts(b, n->kind == N_LET && n->let.is_var          ? "var"
              : n->kind == N_FIELD && n->field.is_buffer ? "buffer"
              : n->kind == N_FIELD                       ? "param-field"
                                                         : ast_kind_name(n->kind));
  switch ((NodeKind)n->kind) {
  case N_USE:
    dump_words(b, n->use.path, " ", ".", "");
    if (n->use.file) {
      buf_putc(b, ' ');
      buf_json(b, n->use.file, strlen(n->use.file));
    }
    if (n->use.as.name) buf_printf(b, " as %s", n->use.as.name);
    dump_words(b, n->use.names, " (", " ", ")");
    break;
  case N_TYPE_DECL: dump_word(b, n->type_decl.name); break;
  case N_POLICY_DECL: dump_word(b, n->policy_decl.name); break;
  case N_MODEL: dump_word(b, n->model.name); break;
  case N_FIELD: dump_word(b, n->field.name); break;
  case N_FN:
  case N_LAMBDA: dump_fn(b, n->fn); break;
  case N_PARAM:
    dump_word(b, n->param.name);
    if (n->param.type) buf_puts(b, " :");
    one(n->param.type, dump, b);
    if (n->param.init) buf_puts(b, " =");
    one(n->param.init, dump, b);
    break;
  case N_LET:
    dump(b, n->let.pat);
    if (n->let.type) buf_puts(b, " :");
    one(n->let.type, dump, b);
    one(n->let.init, dump, b);
    break;
  case N_ASSIGN: buf_printf(b, " %s", ast_op_text(n->assign.op)); break;
  case N_FOR:
  case N_WHILE: buf_puts(b, n->loop.is_checkpoint ? " checkpoint" : ""); break;
  case N_STRING: dump_string(b, n); break;
  case N_UNARY: buf_printf(b, " %s", ast_op_text(n->unary.op)); break;
  case N_BINARY: buf_printf(b, " %s", ast_op_text(n->binary.op)); break;
  case N_ARG:
    if (n->arg.name.name) buf_printf(b, " %s =", n->arg.name.name);
    break;
  case N_CLAUSE:
    dump_words(b, n->clause.path, " ", ".", "");
    buf_puts(b, n->clause.is_set ? " =" : "");
    if (n->clause.as.name) buf_printf(b, " as %s", n->clause.as.name);
    break;
  case N_TYPE_NAME: dump_words(b, n->type_name.path, " ", ".", ""); break;
  case N_TYPE_FIELD: dump_word(b, n->type_field.name); break;
  case N_TYPE_FN:
    each(n->type_fn.params, dump, b);
    buf_puts(b, " ->");
    dump(b, n->type_fn.result);
    break;
  case N_SLICE:
    dump_or(b, n->slice.lo);
    dump_or(b, n->slice.hi);
    dump_or(b, n->slice.step);
    break;
  case N_DOT:
    dump(b, n->dot.object);
    dump_word(b, n->dot.name);
    break;
  case N_ITEM:
    dump(b, n->item.object);
    buf_printf(b, " %lld", (long long)n->item.index);
    break;
  default: break;
  }
  switch ((NodeKind)n->kind) { /* these printed their children above */
  case N_FN:
  case N_LAMBDA:
  case N_PARAM:
  case N_LET:
  case N_STRING:
  case N_TYPE_FN:
  case N_SLICE:
  case N_DOT:
  case N_ITEM: break;
  default: ast_children(n, dump, b);
  }
  buf_putc(b, ')');
}
