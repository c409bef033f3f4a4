/* The kinds of nodes of the syntax tree, and operators. */
#ifndef CKL_PARSER_NODE_KIND_H
#define CKL_PARSER_NODE_KIND_H

/* Each kind, with the member of the union that it uses in brackets, and its meaning. */
typedef enum NodeKind {
  N_BAD, /* in place of text that could not be parsed; only in trees with errors */

  /* file and declarations */
  N_FILE,        /* [file] */
  N_USE,         /* [use] */
  N_TYPE_DECL,   /* [type_decl] type Fit = (..) */
  N_POLICY_DECL, /* [policy_decl] policy lean(n) { .. } */
  N_TEST,        /* [test] */
  N_MODEL,       /* [model] members: N_FIELD, N_LET (pattern N_PAT_NAME), N_ASSERT, N_FN, N_BAD */
  N_FIELD,       /* [field] param tok: f32[v, d] = e;  buffer m: f32 */
  N_FN,          /* [fn] fn or proc with a name: file item, model member, or statement in a block */
  N_PARAM,       /* [param] one parameter of a fn, lambda, model or policy */

  /* statements: items of files and blocks */
  N_LET,       /* [let] let or var */
  N_ASSIGN,    /* [assign] x = e, x[i] += e, x .= f(): N_NAME, N_DOT or N_INDEX (else an error) */
  N_EXPR_STMT, /* [expr] an expression as a statement; the last one is the value of a block */
  N_FOR,       /* [loop] */
  N_WHILE,     /* [loop] */
  N_RETURN,    /* [expr], or NULL */
  N_BREAK,
  N_CONTINUE,
  N_ASSERT, /* [expr] */

  /* patterns */
  N_PAT_NAME,   /* [word] */
  N_PAT_WILD,   /* _ */
  N_PAT_TUPLE,  /* [list] (a, (b, c)) */
  N_PAT_RECORD, /* [list] {a, b}: N_PAT_NAME each */

  /* expressions */
  N_INT,    /* [number] value in .i */
  N_FLOAT,  /* [number] value in .f */
  N_SIZE,   /* [number] bytes in .i */
  N_STRING, /* [string] */
  N_BOOL,   /* [boolean] */
  N_NAME,   /* [name] */
  N_SELF,
  N_PLACE,      /* in `x .= f(a)`, whose value is a call of f by it: what the place was before */
  N_UNIT,       /* () */
  N_UNARY,      /* [unary] */
  N_BINARY,     /* [binary]; AST_RANGE is lo..hi */
  N_CALL,       /* [call] args are N_ARG */
  N_ARG,        /* [arg] one argument of a call, or one field of a record */
  N_DOT,        /* [dot] a.b: a field, or the function of a.b(..) when called */
  N_ITEM,       /* [item] t.0 */
  N_INDEX,      /* [index] x[..]: items are expressions, N_ELLIPSIS or N_SLICE; one or more */
  N_ELLIPSIS,   /* ... in an index */
  N_SLICE,      /* [slice] a:b:c in an index */
  N_BLOCK,      /* [list] { statements } */
  N_IF,         /* [if_] */
  N_TUPLE,      /* [list] one item or more */
  N_RECORD,     /* [list] (x = 1, y = 2): N_ARG each, with names */
  N_LIST,       /* [list] */
  N_DICT,       /* [list] [k: v, l: w], [:]: N_ENTRY each */
  N_ENTRY,      /* [entry] k: v of a dict, or as the value of a comprehension */
  N_COMP,       /* [comp] [e for p in s, q in t] */
  N_COMP_FOR,   /* [loop] one `p in s if c` of it: pat, iter and cond only */
  N_LAMBDA,     /* [fn] name empty */
  N_CHECKPOINT, /* [region] checkpoint <clauses> { } */
  N_WRAP,       /* [region] wrap <clauses> { } */

  /* policy clauses */
  N_CLAUSE, /* [clause] save a b.c, budget = 2GiB, lean (n) */
  N_WORD,   /* [path] a dotted word as argument of a clause; others are literals or expressions */

  /* types */
  N_TYPE_NAME,   /* [type_name] f32[B, d], data.Table, params[net] */
  N_TYPE_LIST,   /* [type_list] [T] */
  N_TYPE_DICT,   /* [entry] [K: T] */
  N_TYPE_TUPLE,  /* [list] (A, B), (A,), () */
  N_TYPE_RECORD, /* [list] (x: A, y: B): N_TYPE_FIELD each */
  N_TYPE_FIELD,  /* [type_field] */
  N_TYPE_FN,     /* [type_fn] */
  N_PACK,        /* [word] ...S as a dim; .name NULL for a bare ... */
  N_KIND_COUNT
} NodeKind;

typedef enum AstOp {
  AST_NONE, /* plain `=` in N_ASSIGN */
  AST_OR,
  AST_AND,
  AST_NOT,
  AST_LT,
  AST_LE,
  AST_GT,
  AST_GE,
  AST_EQ,
  AST_NE,
  AST_IN,
  AST_NOT_IN,
  AST_RANGE,
  AST_ADD,
  AST_SUB,
  AST_MUL,
  AST_DIV,
  AST_FLOORDIV,
  AST_MOD,
  AST_MATMUL,
  AST_NEG,
  AST_POW,
  AST_UPDATE /* `.=` in N_ASSIGN */
} AstOp;

#endif
