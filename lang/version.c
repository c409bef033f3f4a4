/* The version, and until the session is here, every other function of ckl.h as an empty place. */
#include "ckl.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

const char *ckl_version(void) {
  return CKL_VERSION;
}
ckl_session *ckl_open(const ckl_config *config) {
  return 0;
}
void ckl_close(ckl_session *s) {}
void ckl_interrupt(ckl_session *s) {}
ckl_status ckl_reset(ckl_session *s) {
  return 0;
}
ckl_status ckl_run_file(ckl_session *s, const char *path) {
  return 0;
}
ckl_status ckl_check_file(ckl_session *s, const char *path) {
  return 0;
}
ckl_status ckl_eval(ckl_session *s, const char *text, const char *name, ckl_value **out) {
  return 0;
}
bool ckl_is_complete(const char *text, size_t n) {
  return 0;
}
ckl_status ckl_test_file(ckl_session *s, const char *path, const char *filter,
                         void (*report)(void *ud, const char *title, bool ok,
                                        const char *diagnostics),
                         void *ud) {
  return 0;
}
ckl_value *ckl_retain(ckl_value *v) {
  return 0;
}
void ckl_release(ckl_value *v) {}
ckl_value *ckl_int(ckl_session *s, int64_t i) {
  return 0;
}
ckl_value *ckl_float(ckl_session *s, double x) {
  return 0;
}
ckl_value *ckl_bool(ckl_session *s, bool b) {
  return 0;
}
ckl_value *ckl_str(ckl_session *s, const char *text, size_t n) {
  return 0;
}
ckl_value *ckl_tensor(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                      const void *data) {
  return 0;
}
ckl_value *ckl_tensor_borrow(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                             void *data, void (*done)(void *ud), void *ud) {
  return 0;
}
ckl_kind ckl_kind_of(const ckl_value *v) {
  return 0;
}
int64_t ckl_to_int(const ckl_value *v) {
  return 0;
}
double ckl_to_float(const ckl_value *v) {
  return 0;
}
const char *ckl_to_str(const ckl_value *v, size_t *n) {
  return 0;
}
const char *ckl_tensor_dtype(const ckl_value *v) {
  return 0;
}
int ckl_tensor_rank(const ckl_value *v) {
  return 0;
}
int64_t ckl_tensor_dim(const ckl_value *v, int axis) {
  return 0;
}
const void *ckl_tensor_data(ckl_value *v) {
  return 0;
}
size_t ckl_length(const ckl_value *v) {
  return 0;
}
ckl_value *ckl_item(const ckl_value *v, size_t i) {
  return 0;
}
const char *ckl_field_name(const ckl_value *v, size_t i) {
  return 0;
}
ckl_value *ckl_get(ckl_session *s, const char *name) {
  return 0;
}
ckl_status ckl_set(ckl_session *s, const char *name, ckl_value *v) {
  return 0;
}
ckl_status ckl_call(ckl_session *s, ckl_value *f, ckl_value *const *args, size_t n,
                    ckl_value **out) {
  return 0;
}
const char *ckl_show(ckl_session *s, const char *name, const ckl_value *v) {
  return 0;
}
const char *ckl_complete(ckl_session *s, const char *prefix, size_t i) {
  return 0;
}
size_t ckl_diag_count(const ckl_session *s) {
  return 0;
}
const char *ckl_diag_text(ckl_session *s, size_t i, unsigned flags) {
  return 0;
}
const char *ckl_diag_json(ckl_session *s, size_t i) {
  return 0;
}
const char *ckl_diag_code(const ckl_session *s, size_t i) {
  return 0;
}
bool ckl_diag_is_error(const ckl_session *s, size_t i) {
  return 0;
}
int64_t ckl_counter(const ckl_session *s, const char *name) {
  return 0;
}
const char *ckl_counter_name(size_t i) {
  return 0;
}
ckl_status ckl_log(ckl_session *s, const char *channel) {
  return 0;
}
const char *ckl_format(ckl_session *s, const char *path_for_messages, const char *text, size_t n) {
  return 0;
}
const char *ckl_ir(ckl_session *s, const char *path, const char *fn, const char *const *types,
                   size_t type_count, const char *stage) {
  return 0;
}
const char *ckl_stage_name(size_t i) {
  return 0;
}
const char *ckl_pass_name(size_t i) {
  return 0;
}
const char *ckl_opt(ckl_session *s, const char *pass, const char *name, const char *text,
                    size_t n) {
  return 0;
}
ckl_status ckl_dump(ckl_session *s, const char *stage) {
  return 0;
}
const char *ckl_help(ckl_session *s, const char *topic) {
  return 0;
}
const char *ckl_error_code(size_t i) {
  return 0;
}
const char *ckl_ops_markdown(ckl_session *s) {
  return 0;
}
const char *ckl_builtins_markdown(ckl_session *s) {
  return 0;
}
const char *ckl_errors_markdown(ckl_session *s) {
  return 0;
}
