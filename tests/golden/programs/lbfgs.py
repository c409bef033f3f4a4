# Reference: numpy L-BFGS (m = 5) written with deques; gradients by jax through the recorded step lengths; logistic: scipy minimum and implicit function theorem.
import numpy as np, jax, jax.numpy as jnp; jax.config.update('jax_enable_x64',True)
from scipy.optimize import minimize
def rosen(x,a): return jnp.sum(a*(x[1:]-x[:-1]**2)**2+(1-x[:-1])**2)
gr=jax.grad(rosen)
def run(x,a,most,rec=None):
    S=[];st=[];ev=0;sg=jax.lax.stop_gradient
    for t in range(most):
        g=gr(x,a);q=g;al=[]
        for s,y,r in S[::-1]:
            A=r*(s@q); q=q-A*y; al.append(A)
        if S: s,y,r=S[-1]; q=q*((s@y)/(y@y))
        for (s,y,r),A in zip(S,al[::-1]): q=q+s*(A-r*(y@q))
        d=-q
        if rec is None:
            k=min(1.,1/float(jnp.linalg.norm(g))) if not S else 1.
            k0=k
            while rosen(x+k*d,a)>rosen(x,a)+1e-4*k*(g@d) and k>1e-12: k/=2; ev+=1
        else: k,push=rec[t]
        step=k if rec is None else k*(jnp.minimum(1.,1/jnp.linalg.norm(g)) if not S else 1.)
        z=x+step*d; s,y=z-x,gr(z,a)-g
        if rec is None: push=bool(s@y>1e-12); st.append((k/k0,push))
        if push: S=(S+[(s,y,1/(s@y))])[-5:]
        x=z
        if rec is None and np.linalg.norm(np.asarray(x)-1)<1e-10: break
        if rec is not None and t+1==len(rec): break
    return (x,st,ev)
for x0,ms in ((jnp.array([-1.2,1.]),(1,2,3,7,100)),(jnp.array([-1.2,1,.5,2]),(8,))):
    for m in ms:
        x,st,ev=run(x0,100.,m)
        f=lambda x0,a:jnp.sum(run(x0,a,m,st)[0])
        print(len(x0),m,np.asarray(x).tolist(),len(st),ev,float(jax.grad(f,1)(x0,100.)),jax.grad(f,0)(x0,100.).tolist())
i=np.arange(60.).reshape(20,3); X=np.sin(i**2*.37); Y=(X@[1,-2,.5]+.8*np.cos(3*np.arange(20.))>0)*1.
for lam in (0.1,1.):
    f=lambda w:np.mean(np.logaddexp(0,X@w)-Y*(X@w))+.5*lam*w@w
    g=lambda w:X.T@(1/(1+np.exp(-X@w))-Y)/20+lam*w
    w=minimize(f,np.zeros(3),jac=g,method='BFGS',options=dict(gtol=1e-13)).x
    for _ in range(5):
        p=1/(1+np.exp(-X@w)); H=X.T@(X*(p*(1-p))[:,None])/20+lam*np.eye(3); w=w-np.linalg.solve(H,g(w))
    c=np.array([1.,-2,3]); v=np.linalg.solve(H,c)
    p=1/(1+np.exp(-X@w)); dX=-(np.outer(p-Y,v)+(p*(1-p)*(X@v))[:,None]*w)/20
    print('logistic',lam,w.tolist(),-(v@w),dX[0].tolist())
