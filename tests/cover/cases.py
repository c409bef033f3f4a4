"""How the scripts here write cases of builtins.txt; `want` is a value, a tuple of values, or the text itself."""
import numpy as np

A = np.array

def val(v, dt="f64"):
    v = np.asarray(v)
    if v.dtype == bool: return repr(v.tolist()).replace("True", "true").replace("False", "false")
    ints = v.dtype.kind in "iu"
    return f"{'i64' if ints else dt}({repr(v.tolist())})"

def case(call, inputs, want, opts="", dt="f64", exact=False):
    ins = "; ".join(f"{k} = {v if isinstance(v, str) else val(v, dt)}" for k, v in inputs.items())
    if isinstance(want, tuple): w = "(" + ", ".join(val(v, dt) for v in want) + ")"
    else: w = want if isinstance(want, str) else val(want, dt)
    print(f"{call} | {ins} | {'' if exact else '~ '}{w}" + (f" | {opts}" if opts else ""))

def row(name, *kinds):
    print(f"\n[{name}]")
    for k in kinds: print(f"kinds {k}")
