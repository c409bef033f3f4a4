# Reference: jax f64 (jacfwd through the same fixed number of Newton turns, backtracking decided in numpy by values).
import jax, jax.numpy as jnp; jax.config.update('jax_enable_x64',True)
def rosen(x,a): return jnp.sum(a*(x[1:]-x[:-1]**2)**2+(1-x[:-1])**2)
def newton(x,a,most):
    it=ev=0
    while it<most:
        g=jax.grad(rosen)(x,a);
        if float(jax.lax.stop_gradient(jnp.linalg.norm(g)))<1e-10: break
        h=jax.hessian(rosen)(x,a); d=-jnp.linalg.solve(h,g)
        if float(jax.lax.stop_gradient(d@g))>=0: d=-g
        s=1.0
        while s>1e-10:
            ev+=1
            if float(jax.lax.stop_gradient(rosen(x+s*d,a)-rosen(x,a)-1e-4*s*(d@g)))<=0: break
            s/=2
        x=x+s*d; it+=1
    return x,it,ev
a0,x0=100.,jnp.array([-1.2,1.])
# gradient by central differences with the line search frozen to the steps of the base point
def steps(x,a,most):
    out=[];it=0
    while it<most:
        g=jax.grad(rosen)(x,a)
        if jnp.linalg.norm(g)<1e-10: break
        d=-jnp.linalg.solve(jax.hessian(rosen)(x,a),g); neg=d@g>=0
        if neg: d=-g
        s=1.0
        while s>1e-10 and rosen(x+s*d,a)>rosen(x,a)+1e-4*s*(d@g): s/=2
        out.append((s,bool(neg))); x=x+s*d; it+=1
    return out
def replay(x,a,st):
    for s,neg in st:
        g=jax.grad(rosen)(x,a); d=-g if neg else -jnp.linalg.solve(jax.hessian(rosen)(x,a),g); x=x+s*d
    return x
for most in (1,2,5,100):
    st=steps(x0,a0,most)
    f=lambda x,a:(lambda r:r[0]+2*r[1])(replay(x,a,st))
    print(most,len(st),replay(x0,a0,st).tolist(),float(jax.grad(f,1)(x0,a0)),jax.grad(f,0)(x0,a0).tolist())
