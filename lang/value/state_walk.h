/* Params and buffers of values by path.
 *
 * Paths are dotted: fields of instances and records by name, items of lists and tuples by number
 * ("blocks.3.up.w", rule 57). Instances received as constructor arguments are references, not
 * children. An instance or param that is reachable twice counts once, under its first path.
 */
#ifndef CKL_LANG_VALUE_STATE_WALK_H
#define CKL_LANG_VALUE_STATE_WALK_H

#include "lang/lang.h"

/* `p` is the param, or NULL for a buffer (its value is f->v, a tensor, number or tree). A tracked
 * param that is itself an item of the root has neither owner nor field. */
typedef void (*SlotFn)(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p);
/* Calls fn for every param and buffer of root (an instance, or a tree of instances and params), in
 * the order of declaration. Paths live on the scratch arena. */
void walk_slots(Session *s, Value root, SlotFn fn, void *ud);

/* walk_leaves calls fn for every leaf. `v` is a param, a leaf of a buffer's tree, or an item of the
 * root that is neither a tree nor an instance; such an item has no owner. */
typedef void (*LeafFn)(Session *s, void *ud, const char *path, Inst *owner, Field *f, Value v);
void walk_leaves(Session *s, Value root, LeafFn fn, void *ud);
/* Whether the glob matches the path of a slot, or the path of a value around it. */
bool walk_path_fits(Session *s, const char *glob, const char *path);

#endif
