/* The grammar of ckl: tokens to syntax tree.
 *
 * In: tokens of lex.re, with newlines already turned into SEP where they end a statement. Out: the
 * N_FILE node in ps->root. LALR(1) without a conflict; the build stops at one.
 *
 * The driver (parse.c) asks gr_accepts before it feeds a token, so the parser never sees a wrong
 * one; to recover it cuts the stack back to the innermost place where a statement may stand and
 * feeds BAD. Nothing is freed here: nodes live in an arena. */

%name Gr
%token_prefix TK_
%token_type {Tok}
%default_type {Node *}
%extra_context {Parser *ps}
%stack_size 4000

%include {
#ifndef NDEBUG
#define NDEBUG 1
#endif
#define YYNOERRORRECOVERY 1
#include <stdlib.h>
#include <string.h>
#include "parser/lex.h"

/* Ends of a construct, as byte places. */
#define NODE(kind, lo, hi) ps_node(ps, kind, lo, hi)
#define DONE(n) ps_done(ps, n)
#define LO(n) ((n)->span.lo)
#define HI(n) ((n)->span.hi)

/* A body: `= e` or a block. */
typedef struct Body { Node *node; bool is_expr; } Body;
/* `[..]`, `(..)` with its last byte. */
typedef struct Group { NodeList *list; uint32_t lo, hi; bool present; } Group;

void *GrAlloc(void *(*malloc_proc)(size_t), Parser *ps);
void GrFree(void *p, void (*free_proc)(void *));
void GrInit(void *p, Parser *ps);
void GrFinalize(void *p);
void Gr(void *p, int major, Tok minor);
int GrFallback(int token);
}

%syntax_error { (void)yymajor; (void)TOKEN; (void)ps; }

%fallback IDENT PROC MODEL PARAM BUFFER POLICY TYPE TEST USE AS.

%right LAMBDA.
%left OR.
%left AND.
%right NOT.
%nonassoc LT LE GT GE EQEQ NE IN.
%nonassoc RANGE.
%left PLUS MINUS.
%left STAR SLASH DSLASH PERCENT AT.
%right NEG.
%right POW.

%type items {NodeList *}
%type members {NodeList *}
%type params {NodeList *}
%type paramlist {NodeList *}
%type clauses {NodeList *}
%type clauselist {NodeList *}
%type cargs {NodeList *}
%type cargs1 {NodeList *}
%type dims {NodeList *}
%type dimlist {NodeList *}
%type tyitems {NodeList *}
%type tyitemlist {NodeList *}
%type pats {NodeList *}
%type patnames {NodeList *}
%type args {NodeList *}
%type arglist {NodeList *}
%type fields {NodeList *}
%type indices {NodeList *}
%type exprs {NodeList *}
%type entries {NodeList *}
%type gens {NodeList *}
%type dotted {Words *}
%type names {Words *}
%type dimnames {Words *}
%type parts {Node *}
%type body {Body}
%type mparams {Group}
%type policy {Group}
%type opolicy {Group}
%type ocomma {bool}
%type word {Tok}
%type fnhead {Node *}
%type assignop {AstOp}

program ::= items(A). { ps_file(ps, A); }
program ::= items(A) item(B). { ps_file(ps, ps_push(ps, A, B)); }

items(A) ::= . { A = ps_list(ps); }
items(A) ::= items(B) item(X) SEP(S). { X->semicolon = S.semi; A = ps_push(ps, B, X); }
items(A) ::= items(B) SEP. { A = B; }

item(A) ::= stmt(B). { A = B; }
item(A) ::= decl(B). { A = B; }
item(A) ::= BAD(T). { A = NODE(N_BAD, T.lo, T.hi); }

/* ---- declarations */

decl(A) ::= USE(K) dotted(D). {
  A = NODE(N_USE, K.lo, D->items[D->count - 1].span.hi);
  A->use.path = *D;
}
decl(A) ::= USE(K) dotted(D) AS name(N). {
  A = NODE(N_USE, K.lo, HI(N));
  A->use.path = *D;
  A->use.as = N->word;
}
decl(A) ::= USE(K) dotted(D) LPAREN names(N) ocomma RPAREN(R). {
  A = NODE(N_USE, K.lo, R.hi);
  A->use.path = *D;
  A->use.names = *N;
}
decl(A) ::= USE(K) string(S). {
  A = NODE(N_USE, K.lo, HI(S));
  A->use.file = ps_plain(ps, S);
  A->use.file_span = S->span;
}
decl(A) ::= USE(K) string(S) AS name(N). {
  A = NODE(N_USE, K.lo, HI(N));
  A->use.file = ps_plain(ps, S);
  A->use.file_span = S->span;
  A->use.as = N->word;
}
decl(A) ::= USE(K) string(S) LPAREN names(N) ocomma RPAREN(R). {
  A = NODE(N_USE, K.lo, R.hi);
  A->use.file = ps_plain(ps, S);
  A->use.file_span = S->span;
  A->use.names = *N;
}

decl(A) ::= TYPE(K) name(N) EQ type(T). {
  A = NODE(N_TYPE_DECL, K.lo, HI(T));
  A->type_decl.name = N->word;
  A->type_decl.type = T;
  A->type_decl.doc = ps_doc(ps, K.lo);
  A = DONE(A);
}

decl(A) ::= POLICY(K) name(N) mparams(P) LBRACE clauses(C) osep RBRACE(R). {
  A = NODE(N_POLICY_DECL, K.lo, R.hi);
  A->policy_decl.name = N->word;
  A->policy_decl.has_params = P.present;
  A->policy_decl.params = *P.list;
  A->policy_decl.clauses = *C;
  A->policy_decl.doc = ps_doc(ps, K.lo);
  A = DONE(A);
}

decl(A) ::= TEST(K) string(S) block(B). {
  A = NODE(N_TEST, K.lo, HI(B));
  ps_plain(ps, S);
  A->test.title = S;
  A->test.body = B;
  A = DONE(A);
}

decl(A) ::= MODEL(K) name(N) mparams(P) LBRACE members(M) RBRACE(R). {
  A = NODE(N_MODEL, K.lo, R.hi);
  A->model.name = N->word;
  A->model.has_params = P.present;
  A->model.params = *P.list;
  A->model.members = *ps_members(ps, M);
  A->model.doc = ps_doc(ps, K.lo);
  A = DONE(A);
}
decl(A) ::= field(B). { A = B; }
decl(A) ::= fndecl(B). { A = B; }

members(A) ::= items(B). { A = B; }
members(A) ::= items(B) item(X). { A = ps_push(ps, B, X); }

mparams(A) ::= . { A = (Group){.list = ps_list(ps)}; }
mparams(A) ::= LPAREN(L) params(P) RPAREN(R). { A = (Group){P, L.lo, R.hi, true}; }

%type fieldkw {Tok}
fieldkw(A) ::= PARAM(T). { A = T; A.semi = false; }
fieldkw(A) ::= BUFFER(T). { A = T; A.semi = true; /* a buffer */ }
field(A) ::= fieldkw(K) name(N) COLON type(T). {
  A = NODE(N_FIELD, K.lo, HI(T));
  A->field.name = N->word;
  A->field.is_buffer = K.semi;
  A->field.type = T;
  A->field.doc = ps_doc(ps, K.lo);
  A = DONE(A);
}
field(A) ::= fieldkw(K) name(N) COLON type(T) EQ expr(E). {
  A = NODE(N_FIELD, K.lo, HI(E));
  A->field.name = N->word;
  A->field.is_buffer = K.semi;
  A->field.type = T;
  A->field.init = ps_value(ps, E);
  A->field.doc = ps_doc(ps, K.lo);
  A = DONE(A);
}

%type fnkw {Tok}
fnkw(A) ::= FN(T). { A = T; A.semi = false; }
fnkw(A) ::= PROC(T). { A = T; A.semi = true; /* a proc */ }
fnhead(A) ::= fnkw(K) name(N) dimnames(D) LPAREN params(P) RPAREN(R) oresult(T). {
  uint32_t hi = T ? HI(T) : R.hi;
  A = NODE(N_FN, K.lo, hi);
  Fn *f = A->fn = ps_fn(ps);
  f->is_proc = K.semi;
  f->name = N->word;
  f->dims = *D;
  f->params = *P;
  f->result = T;
  f->header = ps_span(ps, K.lo, hi);
  f->doc = ps_doc(ps, K.lo);
}
fndecl(A) ::= fnhead(H) body(B). {
  A = H;
  A->fn->body = B.node;
  A->fn->body_is_expr = B.is_expr;
  A->span.hi = HI(B.node);
  A = DONE(A);
}
fndecl(A) ::= fnhead(H) body(B) BACKWARD(K) LPAREN params(P) RPAREN(R) body(C). {
  A = H;
  A->fn->body = B.node;
  A->fn->body_is_expr = B.is_expr;
  A->fn->back_params = *P;
  A->fn->back_body = C.node;
  A->fn->back_is_expr = C.is_expr;
  A->fn->back_span = ps_span(ps, K.lo, R.hi);
  A->span.hi = HI(C.node);
  A = DONE(A);
}

dimnames(A) ::= . { A = ps_words(ps, NULL, (Tok){.kind = 0}); }
dimnames(A) ::= LBRACK names(N) ocomma RBRACK. { A = N; }

oresult(A) ::= . { A = NULL; }
oresult(A) ::= ARROW type(T). { A = T; }

body(A) ::= EQ expr(E). { A = (Body){E, true}; }
body(A) ::= block(B). { A = (Body){B, false}; }

params(A) ::= . { A = ps_list(ps); }
params(A) ::= paramlist(P) ocomma. { A = P; }
paramlist(A) ::= param(P). { A = ps_list1(ps, P); }
paramlist(A) ::= paramlist(L) COMMA param(P). { A = ps_push(ps, L, P); }
param(A) ::= name(N) otype(T). {
  A = NODE(N_PARAM, LO(N), T ? HI(T) : HI(N));
  A->param.name = N->word;
  A->param.type = T;
  A = DONE(A);
}
param(A) ::= name(N) otype(T) EQ expr(E). {
  A = NODE(N_PARAM, LO(N), HI(E));
  A->param.name = N->word;
  A->param.type = T;
  A->param.init = ps_value(ps, E);
  A = DONE(A);
}

/* A node with .word, so that a name knows its place. */
name(A) ::= IDENT(T). {
  A = NODE(N_PAT_NAME, T.lo, T.hi);
  A->word = ps_word(ps, T);
}
names(A) ::= IDENT(T). { A = ps_words(ps, NULL, T); }
names(A) ::= names(W) COMMA IDENT(T). { A = ps_words(ps, W, T); }
dotted(A) ::= IDENT(T). { A = ps_words(ps, NULL, T); }
dotted(A) ::= dotted(W) DOT IDENT(T). { A = ps_words(ps, W, T); }

ocomma(A) ::= . { A = false; }
ocomma(A) ::= COMMA. { A = true; }
osep ::= .
osep ::= SEP.

/* ---- types */

otype(A) ::= . { A = NULL; }
otype(A) ::= COLON type(T). { A = T; }

type(A) ::= dotted(D). {
  A = NODE(N_TYPE_NAME, D->items[0].span.lo, D->items[D->count - 1].span.hi);
  A->type_name.path = *D;
}
type(A) ::= dotted(D) LBRACK dims(L) RBRACK(R). {
  A = NODE(N_TYPE_NAME, D->items[0].span.lo, R.hi);
  A->type_name.path = *D;
  A->type_name.dims = *L;
  A->type_name.has_dims = true;
  A = DONE(A);
}
type(A) ::= LBRACK(L) type(T) RBRACK(R). {
  A = NODE(N_TYPE_LIST, L.lo, R.hi);
  A->type_list = T;
  A = DONE(A);
}
type(A) ::= LBRACK(L) type(K) COLON type(T) RBRACK(R). {
  A = NODE(N_TYPE_DICT, L.lo, R.hi);
  A->entry.key = K;
  A->entry.value = T;
  A = DONE(A);
}
type(A) ::= LPAREN(L) RPAREN(R). { A = NODE(N_TYPE_TUPLE, L.lo, R.hi); }
type(A) ::= LPAREN(L) tyitemlist(I) ocomma(C) RPAREN(R). {
  A = ps_tuple_type(ps, I, C, L.lo, R.hi);
}
type(A) ::= FN(K) LPAREN tyitems(I) RPAREN ARROW type(T). {
  A = NODE(N_TYPE_FN, K.lo, HI(T));
  A->type_fn.params = *I;
  A->type_fn.result = T;
  A = DONE(A);
}
tyitems(A) ::= . { A = ps_list(ps); }
tyitems(A) ::= tyitemlist(L) ocomma. { A = L; }
tyitemlist(A) ::= tyitem(T). { A = ps_list1(ps, T); }
tyitemlist(A) ::= tyitemlist(L) COMMA tyitem(T). { A = ps_push(ps, L, T); }
tyitem(A) ::= type(T). { A = T; }
tyitem(A) ::= name(N) COLON type(T). {
  A = NODE(N_TYPE_FIELD, LO(N), HI(T));
  A->type_field.name = N->word;
  A->type_field.type = T;
  A = DONE(A);
}

dims(A) ::= . { A = ps_list(ps); }
dims(A) ::= dimlist(L). { A = L; }
dimlist(A) ::= dim(D). { A = ps_list1(ps, D); }
dimlist(A) ::= dimlist(L) COMMA dim(D). { A = ps_push(ps, L, D); }
dim(A) ::= expr(E). { A = E; }
dim(A) ::= ELLIPSIS(T). { A = NODE(N_PACK, T.lo, T.hi); }
dim(A) ::= ELLIPSIS(T) name(N). {
  A = NODE(N_PACK, T.lo, HI(N));
  A->word = N->word;
}

/* ---- statements */

block(A) ::= LBRACE(L) items(I) RBRACE(R). { A = ps_block(ps, I, L.lo, R.hi); }
block(A) ::= LBRACE(L) items(I) item(X) RBRACE(R). {
  A = ps_block(ps, ps_push(ps, I, X), L.lo, R.hi);
}

%type letkw {Tok}
letkw(A) ::= LET(T). { A = T; A.semi = false; }
letkw(A) ::= VAR(T). { A = T; A.semi = true; /* a var */ }
stmt(A) ::= letkw(K) pat(P) otype(T) EQ expr(E). {
  A = NODE(N_LET, K.lo, HI(E));
  A->let.is_var = K.semi;
  A->let.pat = P;
  A->let.type = T;
  A->let.init = ps_value(ps, E);
  A = DONE(A);
}
stmt(A) ::= expr(E). {
  A = NODE(N_EXPR_STMT, LO(E), HI(E));
  A->expr = E;
  A = DONE(A);
}
stmt(A) ::= expr(T) assignop(O) expr(E). { A = ps_assign(ps, O, T, ps_value(ps, E)); }
assignop(A) ::= EQ. { A = AST_NONE; }
assignop(A) ::= PLUSEQ. { A = AST_ADD; }
assignop(A) ::= MINUSEQ. { A = AST_SUB; }
assignop(A) ::= STAREQ. { A = AST_MUL; }
assignop(A) ::= SLASHEQ. { A = AST_DIV; }
assignop(A) ::= ATEQ. { A = AST_MATMUL; }
assignop(A) ::= DOTEQ. { A = AST_UPDATE; }
stmt(A) ::= loop(L). { A = DONE(L); }
stmt(A) ::= CHECKPOINT(K) opolicy(P) loop(L). {
  A = L;
  A->span.lo = K.lo;
  A->loop.is_checkpoint = true;
  A->loop.clauses = *P.list;
  A = DONE(A);
}
stmt(A) ::= RETURN(T). { A = NODE(N_RETURN, T.lo, T.hi); }
stmt(A) ::= RETURN(T) expr(E). {
  A = NODE(N_RETURN, T.lo, HI(E));
  A->expr = ps_value(ps, E);
  A = DONE(A);
}
stmt(A) ::= BREAK(T). { A = NODE(N_BREAK, T.lo, T.hi); }
stmt(A) ::= CONTINUE(T). { A = NODE(N_CONTINUE, T.lo, T.hi); }
stmt(A) ::= ASSERT(T) expr(E). {
  A = NODE(N_ASSERT, T.lo, HI(E));
  A->expr = E;
  A = DONE(A);
}

loop(A) ::= FOR(K) pat(P) IN expr(E) block(B). {
  A = NODE(N_FOR, K.lo, HI(B));
  A->loop.pat = P;
  A->loop.iter = E;
  A->loop.body = B;
}
loop(A) ::= WHILE(K) expr(E) block(B). {
  A = NODE(N_WHILE, K.lo, HI(B));
  A->loop.cond = E;
  A->loop.body = B;
}

pat(A) ::= IDENT(T). { A = ps_pattern(ps, T); }
pat(A) ::= LPAREN(L) pats(P) ocomma(C) RPAREN(R). {
  if (P->count == 1 && !C) {
    A = P->items[0];
  } else {
    A = NODE(N_PAT_TUPLE, L.lo, R.hi);
    A->list = *P;
    A = DONE(A);
  }
}
pat(A) ::= LBRACE(L) patnames(P) ocomma RBRACE(R). {
  A = NODE(N_PAT_RECORD, L.lo, R.hi);
  A->list = *P;
  A = DONE(A);
}
pats(A) ::= pat(P). { A = ps_list1(ps, P); }
pats(A) ::= pats(L) COMMA pat(P). { A = ps_push(ps, L, P); }
patnames(A) ::= name(N). { A = ps_list1(ps, N); }
patnames(A) ::= patnames(L) COMMA name(N). { A = ps_push(ps, L, N); }

/* ---- policies */

opolicy(A) ::= . { A = (Group){.list = ps_list(ps)}; }
opolicy(A) ::= P_OPEN P_CLOSE. { A = (Group){.list = ps_list(ps)}; } /* no clause: a plain block */
opolicy(A) ::= policy(P). { A = P; }
policy(A) ::= P_OPEN(L) clauses(C) P_CLOSE(R). { A = (Group){C, L.lo, R.hi, true}; }
clauses(A) ::= clauselist(L) ocomma. { A = L; }
clauselist(A) ::= clause(C). { A = ps_list1(ps, C); }
clauselist(A) ::= clauselist(L) COMMA clause(C). { A = ps_push(ps, L, C); }
clause(A) ::= path(D) cargs(L). {
  A = NODE(N_CLAUSE, LO(D), L->count ? HI(L->items[L->count - 1]) : HI(D));
  A->clause.path = D->path;
  A->clause.args = *L;
  A = DONE(A);
}
clause(A) ::= path(D) cargs1(L) AS name(F). {
  A = NODE(N_CLAUSE, LO(D), HI(F));
  A->clause.path = D->path;
  A->clause.args = *L;
  A->clause.as = F->word;
  A = DONE(A);
}
clause(A) ::= path(D) EQ carg(X). {
  Node *E = ps_clause_arg(ps, X);
  A = NODE(N_CLAUSE, LO(D), HI(E));
  A->clause.path = D->path;
  A->clause.args = *ps_list1(ps, E);
  A->clause.is_set = true;
  A = DONE(A);
}
cargs(A) ::= . { A = ps_list(ps); }
cargs(A) ::= cargs1(L). { A = L; }
cargs1(A) ::= carg(E). { A = ps_clause_args(ps, ps_list(ps), E); }
cargs1(A) ::= cargs1(L) carg(E). { A = ps_clause_args(ps, L, E); }
carg(A) ::= path(D). { A = D; }
carg(A) ::= INT(T). { A = T.v.node; }
carg(A) ::= FLOAT(T). { A = T.v.node; }
carg(A) ::= SIZE(T). { A = T.v.node; }
carg(A) ::= string(S). { A = S; }
carg(A) ::= LPAREN(L) args(E) RPAREN(R). { /* a call without its function, see ps_clause_arg */
  A = NODE(N_CALL, L.lo, R.hi);
  A->call.args = *E;
}

path(A) ::= word(T). {
  A = NODE(N_WORD, T.lo, T.hi);
  A->path = *ps_words(ps, NULL, T);
}
path(A) ::= path(P) DOT IDENT(T). {
  A = P;
  A->path = *ps_words(ps, &A->path, T);
  A->span.hi = T.hi;
}
word(A) ::= IDENT(T). { A = T; }
word(A) ::= BACKWARD(T). { A = T; }

/* ---- expressions */

expr(A) ::= expr(X) OR(T) expr(Y). { A = ps_binary(ps, AST_OR, T, X, Y); }
expr(A) ::= expr(X) AND(T) expr(Y). { A = ps_binary(ps, AST_AND, T, X, Y); }
expr(A) ::= expr(X) LT(T) expr(Y). { A = ps_binary(ps, AST_LT, T, X, Y); }
expr(A) ::= expr(X) LE(T) expr(Y). { A = ps_binary(ps, AST_LE, T, X, Y); }
expr(A) ::= expr(X) GT(T) expr(Y). { A = ps_binary(ps, AST_GT, T, X, Y); }
expr(A) ::= expr(X) GE(T) expr(Y). { A = ps_binary(ps, AST_GE, T, X, Y); }
expr(A) ::= expr(X) EQEQ(T) expr(Y). { A = ps_binary(ps, AST_EQ, T, X, Y); }
expr(A) ::= expr(X) NE(T) expr(Y). { A = ps_binary(ps, AST_NE, T, X, Y); }
expr(A) ::= expr(X) IN(T) expr(Y). { A = ps_binary(ps, AST_IN, T, X, Y); }
expr(A) ::= expr(X) NOT(T) IN expr(Y). [IN] { A = ps_binary(ps, AST_NOT_IN, T, X, Y); }
expr(A) ::= expr(X) RANGE(T) expr(Y). { A = ps_binary(ps, AST_RANGE, T, X, Y); }
expr(A) ::= expr(X) PLUS(T) expr(Y). { A = ps_binary(ps, AST_ADD, T, X, Y); }
expr(A) ::= expr(X) MINUS(T) expr(Y). { A = ps_binary(ps, AST_SUB, T, X, Y); }
expr(A) ::= expr(X) STAR(T) expr(Y). { A = ps_binary(ps, AST_MUL, T, X, Y); }
expr(A) ::= expr(X) SLASH(T) expr(Y). { A = ps_binary(ps, AST_DIV, T, X, Y); }
expr(A) ::= expr(X) DSLASH(T) expr(Y). { A = ps_binary(ps, AST_FLOORDIV, T, X, Y); }
expr(A) ::= expr(X) PERCENT(T) expr(Y). { A = ps_binary(ps, AST_MOD, T, X, Y); }
expr(A) ::= expr(X) AT(T) expr(Y). { A = ps_binary(ps, AST_MATMUL, T, X, Y); }
expr(A) ::= expr(X) POW(T) expr(Y). { A = ps_binary(ps, AST_POW, T, X, Y); }
expr(A) ::= NOT(T) expr(X). { A = ps_unary(ps, AST_NOT, T, X); }
expr(A) ::= MINUS(T) expr(X). [NEG] { A = ps_unary(ps, AST_NEG, T, X); }
expr(A) ::= lambdahead(H) EQ expr(E). [LAMBDA] {
  A = H;
  A->fn->body = E;
  A->fn->body_is_expr = true;
  A->span.hi = HI(E);
  A = DONE(A);
}
expr(A) ::= lambdahead(H) block(B). {
  A = H;
  A->fn->body = B;
  A->span.hi = HI(B);
  A = DONE(A);
}
expr(A) ::= postfix(P). { A = P; }

lambdahead(A) ::= FN(K) LPAREN params(P) RPAREN(R) oresult(T). {
  A = NODE(N_LAMBDA, K.lo, T ? HI(T) : R.hi);
  A->fn = ps_fn(ps);
  A->fn->params = *P;
  A->fn->result = T;
  A->fn->header = A->span;
}

postfix(A) ::= primary(P). { A = P; }
postfix(A) ::= postfix(P) DOT IDENT(T). {
  A = NODE(N_DOT, LO(P), T.hi);
  A->dot.object = P;
  A->dot.name = ps_word(ps, T);
  A = DONE(A);
}
postfix(A) ::= postfix(P) DOT INT(T). {
  A = NODE(N_ITEM, LO(P), T.hi);
  A->item.object = P;
  A->item.index = T.v.node->number.i;
  A = DONE(A);
}
postfix(A) ::= postfix(P) LPAREN args(L) RPAREN(R). {
  A = NODE(N_CALL, LO(P), R.hi);
  A->call.callee = P;
  A->call.args = *L;
  A = DONE(A);
}
postfix(A) ::= postfix(P) LBRACK indices(L) RBRACK(R). {
  A = NODE(N_INDEX, LO(P), R.hi);
  A->index.object = P;
  A->index.items = *L;
  A = DONE(A);
}

args(A) ::= . { A = ps_list(ps); }
args(A) ::= arglist(L) ocomma. { A = L; }
arglist(A) ::= arg(X). { A = ps_list1(ps, X); }
arglist(A) ::= arglist(L) COMMA arg(X). { A = ps_push(ps, L, X); }
arg(A) ::= expr(E). {
  A = NODE(N_ARG, LO(E), HI(E));
  A->arg.value = ps_value(ps, E);
  A = DONE(A);
}
arg(A) ::= named(N). { A = N; }
named(A) ::= IDENT(T) EQ expr(E). {
  A = NODE(N_ARG, T.lo, HI(E));
  A->arg.name = ps_word(ps, T);
  A->arg.value = ps_value(ps, E);
  A = DONE(A);
}
fields(A) ::= named(N). { A = ps_list1(ps, N); }
fields(A) ::= fields(L) COMMA named(N). { A = ps_push(ps, L, N); }

indices(A) ::= index(X). { A = ps_list1(ps, X); }
indices(A) ::= indices(L) COMMA index(X). { A = ps_push(ps, L, X); }
index(A) ::= expr(E). { A = E; }
index(A) ::= ELLIPSIS(T). { A = NODE(N_ELLIPSIS, T.lo, T.hi); }
index(A) ::= oexpr(X) COLON(C) oexpr(Y). {
  A = NODE(N_SLICE, X ? LO(X) : C.lo, Y ? HI(Y) : C.hi);
  A->slice.lo = X;
  A->slice.hi = Y;
  A = DONE(A);
}
index(A) ::= oexpr(X) COLON(C) oexpr(Y) COLON expr(Z). {
  A = NODE(N_SLICE, X ? LO(X) : C.lo, HI(Z));
  A->slice.lo = X;
  A->slice.hi = Y;
  A->slice.step = Z;
  A = DONE(A);
}
oexpr(A) ::= . { A = NULL; }
oexpr(A) ::= expr(E). { A = E; }

exprs(A) ::= expr(E). { A = ps_list1(ps, ps_value(ps, E)); }
exprs(A) ::= exprs(L) COMMA expr(E). { A = ps_push(ps, L, ps_value(ps, E)); }

primary(A) ::= IDENT(T). {
  A = NODE(N_NAME, T.lo, T.hi);
  A->name = T.v.name;
}
primary(A) ::= SELF(T). { A = NODE(N_SELF, T.lo, T.hi); }
primary(A) ::= INT(T). { A = T.v.node; }
primary(A) ::= FLOAT(T). { A = T.v.node; }
primary(A) ::= SIZE(T). { A = T.v.node; }
primary(A) ::= string(S). { A = S; }
primary(A) ::= TRUE(T). {
  A = NODE(N_BOOL, T.lo, T.hi);
  A->boolean = true;
}
primary(A) ::= FALSE(T). { A = NODE(N_BOOL, T.lo, T.hi); }
primary(A) ::= block(B). { A = B; }
primary(A) ::= if(B). { A = B; }
primary(A) ::= LPAREN(L) RPAREN(R). { A = NODE(N_UNIT, L.lo, R.hi); }
primary(A) ::= LPAREN(L) expr(E) RPAREN(R). {
  A = E;
  A->parens = true;
  A->span = ps_span(ps, L.lo, R.hi);
}
primary(A) ::= LPAREN(L) expr(E) COMMA RPAREN(R). {
  A = NODE(N_TUPLE, L.lo, R.hi);
  A->list = *ps_list1(ps, E);
  A = DONE(A);
}
primary(A) ::= LPAREN(L) expr(E) COMMA exprs(X) ocomma RPAREN(R). {
  NodeList *l = ps_list1(ps, E);
  for (uint32_t i = 0; i < X->count; i++) ps_push(ps, l, X->items[i]);
  A = NODE(N_TUPLE, L.lo, R.hi);
  A->list = *l;
  A = DONE(A);
}
primary(A) ::= LPAREN(L) fields(F) ocomma RPAREN(R). {
  A = NODE(N_RECORD, L.lo, R.hi);
  A->list = *F;
  A = DONE(A);
}
primary(A) ::= LBRACK(L) RBRACK(R). { A = NODE(N_LIST, L.lo, R.hi); }
primary(A) ::= LBRACK(L) exprs(X) ocomma RBRACK(R). {
  A = NODE(N_LIST, L.lo, R.hi);
  A->list = *X;
  A = DONE(A);
}
primary(A) ::= LBRACK(L) expr(E) FOR gens(G) RBRACK(R). {
  A = NODE(N_COMP, L.lo, R.hi);
  A->comp.value = E;
  A->comp.fors = *G;
  A = DONE(A);
}
primary(A) ::= LBRACK(L) COLON RBRACK(R). { A = NODE(N_DICT, L.lo, R.hi); }
primary(A) ::= LBRACK(L) entries(X) ocomma RBRACK(R). {
  A = NODE(N_DICT, L.lo, R.hi);
  A->list = *X;
  A = DONE(A);
}
primary(A) ::= LBRACK(L) entry(E) FOR gens(G) RBRACK(R). {
  A = NODE(N_COMP, L.lo, R.hi);
  A->comp.value = E;
  A->comp.fors = *G;
  A = DONE(A);
}
primary(A) ::= CHECKPOINT(K) opolicy(P) block(B). {
  A = NODE(N_CHECKPOINT, K.lo, HI(B));
  A->region.clauses = *P.list;
  A->region.has_policy = P.present;
  A->region.body = B;
  A = DONE(A);
}
primary(A) ::= WRAP(K) policy(P) block(B). {
  A = NODE(N_WRAP, K.lo, HI(B));
  A->region.clauses = *P.list;
  A->region.has_policy = true;
  A->region.body = B;
  A = DONE(A);
}

entries(A) ::= entry(E). { A = ps_list1(ps, E); }
entries(A) ::= entries(L) COMMA entry(E). { A = ps_push(ps, L, E); }
entry(A) ::= expr(K) COLON expr(V). {
  A = NODE(N_ENTRY, LO(K), HI(V));
  A->entry.key = K;
  A->entry.value = V;
  A = DONE(A);
}

gens(A) ::= gen(G). { A = ps_list1(ps, G); }
gens(A) ::= gens(L) COMMA gen(G). { A = ps_push(ps, L, G); }
gen(A) ::= pat(P) IN expr(E) filter(C). {
  A = NODE(N_COMP_FOR, LO(P), C ? HI(C) : HI(E));
  A->loop.pat = P;
  A->loop.iter = E;
  A->loop.cond = C;
  A = DONE(A);
}
filter(A) ::= . { A = NULL; }
filter(A) ::= IF expr(E). { A = E; }

if(A) ::= IF(K) expr(C) block(B). {
  A = NODE(N_IF, K.lo, HI(B));
  A->if_.cond = C;
  A->if_.then = B;
  A = DONE(A);
}
if(A) ::= IF(K) expr(C) block(B) ELSE else(E). {
  A = NODE(N_IF, K.lo, HI(E));
  A->if_.cond = C;
  A->if_.then = B;
  A->if_.els = E;
  A = DONE(A);
}
else(A) ::= block(B). { A = B; }
else(A) ::= if(I). { A = I; }

string(A) ::= STR_OPEN(L) parts(P) STR_CLOSE(R). {
  A = P;
  A->span = ps_span(ps, L.lo, R.hi);
  A->string.lo = L.lo;
  A->string.hi = R.hi;
  A->string.raw = ps->lx.text[L.lo] == 'r';
  A->string.block = L.hi - L.lo >= 3;
  A = DONE(A);
}
parts(A) ::= . { A = NODE(N_STRING, 0, 0); }
parts(A) ::= parts(P) STR_TEXT(T). {
  A = P;
  VEC_PUSH(ps->c->arena, A->string.items, A->string.count, A->string.cap, *T.v.part);
}
parts(A) ::= parts(P) HOLE_OPEN(L) expr(E) HOLE_CLOSE(R). {
  A = P;
  StrPart part = {.hole = E, .span = ps_span(ps, L.lo, R.hi)};
  if (R.v.format) {
    part.has_format = true;
    part.format = *R.v.format;
  }
  VEC_PUSH(ps->c->arena, A->string.items, A->string.count, A->string.cap, part);
}

%code {
/* ---- looking at the parser's stack */

_Static_assert(GR_STACK == YYSTACKDEPTH, "the stack of the grammar");

size_t gr_size(void) {
  return sizeof(yyParser);
}

void gr_init(void *gr, Parser *ps) {
  GrInit(gr, ps);
}

void gr_feed(void *gr, Tok t) {
  Gr(gr, t.kind, t);
}

int gr_depth(const void *gr) {
  const yyParser *p = gr;
  return (int)(p->yytos - p->yystack);
}

int gr_symbol(const void *gr, int i) {
  const yyParser *p = gr;
  return i < gr_depth(gr) ? p->yytos[-i].major : -1;
}

void gr_cut(void *gr, int depth) {
  yyParser *p = gr;
  p->yytos = p->yystack + depth;
}

int gr_bracket(int symbol) {
  switch (symbol) {
  case TK_LPAREN: case TK_LBRACK: case TK_LBRACE: case TK_P_OPEN: case TK_STR_OPEN:
  case TK_HOLE_OPEN: return 1;
  case TK_RPAREN: case TK_RBRACK: case TK_RBRACE: case TK_P_CLOSE: case TK_STR_CLOSE:
  case TK_HOLE_CLOSE: return -1;
  default: return 0;
  }
}

int gr_brackets(const void *gr) {
  const yyParser *p = gr;
  int open = 0;
  for (const yyStackEntry *e = p->yystack + 1; e <= p->yytos; e++) open += gr_bracket(e->major);
  return open;
}

/* Runs the automaton on states alone: `above` are states pushed over the first `below` entries of
 * the real stack, which stays as it is. */
bool gr_accepts(const void *gr, int tok) {
  const yyParser *p = gr;
  YYACTIONTYPE above[64];
  int count = 0;
  int below = (int)(p->yytos - p->yystack); /* index of the top entry that still counts */
  YYACTIONTYPE state = p->yytos->stateno;
  for (;;) {
    YYACTIONTYPE act = yy_find_shift_action((YYCODETYPE)tok, state);
    if (act == YY_ACCEPT_ACTION) return true;
    if (act == YY_ERROR_ACTION || act == YY_NO_ACTION) return false;
    if (act < YY_MIN_REDUCE) return true; /* a shift */
    unsigned rule = act - YY_MIN_REDUCE;
    int size = -yyRuleInfoNRhs[rule];
    int from_above = size < count ? size : count;
    count -= from_above;
    below -= size - from_above;
    state = count ? above[count - 1] : p->yystack[below].stateno;
    act = yy_find_reduce_action(state, yyRuleInfoLhs[rule]);
    if (act == YY_ACCEPT_ACTION) return true;
    if (count == (int)(sizeof above / sizeof *above)) return false;
    above[count++] = act;
    state = act;
  }
}
}
