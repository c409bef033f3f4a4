/* Statements of random bodies that take matrices apart: each function of `linalg` that code can
 * call.
 *
 * In: a Maker whose scope has a matrix. Out: a line that defines another of its shape. `graded`,
 * which whole.c writes into the program, makes of any matrix one with singular values that are
 * apart and not 0, so that factors have gradients. */
#include "tests/random/maker.h"

void body_matrix(Maker *m, int into) {
  static const char *const forms[] = {
      "linalg.cholesky(fs, jitter = 0.1) @ fb",
      "linalg.solve(fs, fb) + 0 * linalg.solve(fs, fb[:, 0])[0]",
      "let (fw, fq) = linalg.eigh(fs); (fq ** 2 * fw) @ fb",
      "let (fu, fd, fvt) = linalg.svd(fb); (fu ** 2 * fd) @ fvt ** 2",
      "let (fu, fd, fvt) = linalg.svd(fb, full = true); fu ** 2 @ fb @ fvt ** 2 * fd[0]",
      "let (fq, fr) = linalg.qr(fb); fq ** 2 @ fr",
      "linalg.inv(fs) @ fb * linalg.slogdet(fs).1",
      "linalg.expm(0.05 * fs) @ fb",
      "transpose(linalg.pinv(fb)) * linalg.det(0.01 * fs)",
      "fb @ linalg.lstsq(fb, fb * fb)",
      "linalg.matrix_power(0.1 * fs, 3) @ fb",
      "fb * linalg.norm_of(fb, \"nuc\") + linalg.norm_of(fb, 1) * sum(linalg.svdvals(fb))",
      "let (fl, fu, frows) = linalg.lu(fs); fl @ fu @ fb[frows]",
      "let fl = linalg.cholesky(fs); linalg.solve_triangular(fl, fb) + linalg.cholesky_solve(fl, "
      "fb)",
      "let (ew, ev) = linalg.eig(fs @ transpose(graded(fs))); (ev.re ** 2 + ev.im ** 2) @ (fb * "
      "sum(ew.re))",
      "fb * sum(linalg.eigvalsh(fs)) + to_dtype(linalg.rank_of(fb), dtype_of(fb))",
  };
  Var *v = NULL;
  for (int tries = 0; tries < 8 && (!v || v->rank != 2); tries++) v = body_pick(m, AXES, NULL);
  if (!v || v->rank != 2 || m->p->statements + 4 > STATEMENTS) return;
  Var a = *v;
  const char *to = body_define(m, &a)->name;
  line(m, into,
       "let %s = {\n  let fb = graded(%s)\n  let fs = fb @ transpose(fb) + 1 * eye(size(fb, axis = "
       "0), dtype = dtype_of(fb))\n  %s\n}",
       to, a.name, ONE_OF(m, forms));
}
