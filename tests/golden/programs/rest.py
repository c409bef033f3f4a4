# References (jax f64 unless said otherwise), each program written anew: roots, deq, hmc, kalman, gae, nested.
import numpy as np, jax, jax.numpy as jnp; jax.config.update('jax_enable_x64',True)
from scipy.special import lambertw
c=np.array([0,1e-3,.5,1,10,1e4]); w=lambertw(c).real
print('roots',w.tolist(),(np.arange(1,7)*np.where(c>0,w/np.where(c>0,c,1)/(1+w),1)).tolist())
W=jnp.array(.3*np.sin(np.arange(9.).reshape(3,3))); X=jnp.array(np.cos(np.arange(12.).reshape(4,3))); V=jnp.array([1,-.5,2])
# deq: adjoint by a dense linear solve (numpy), checked with jax through 200 turns
def deq(W,X):
    z=0*X
    for _ in range(200): z=jnp.tanh(z@W+X)
    return z
L=lambda W,X,V:jnp.sum((deq(W,X)@V)**2)
z=np.asarray(deq(W,X)); gz=np.outer(2*z@np.asarray(V),V); u=np.zeros_like(z); dW=np.zeros((3,3))
for r in range(4):
    J=np.diag(1-z[r]**2); u[r]=J@np.linalg.solve(np.eye(3)-np.asarray(W)@J,gz[r]); dW+=np.outer(z[r],u[r])
print('deq',float(L(W,X,V)),dW.tolist(),u.tolist(),jax.grad(L,2)(W,X,V).tolist()); g=jax.grad(L,(0,1))(W,X,V); print(abs(g[0]-dW).max(),abs(g[1]-u).max())
# second order: gradient by W of |dL/dX|^2
print('deq2',jax.grad(lambda W:jnp.sum(jax.grad(L,1)(W,X,V)**2))(W).tolist())
# hmc, draws given as tables
def hmc(q,eps,b,n):
    pot=lambda q:.5*(1-q[0])**2+b*(q[1]-q[0]**2)**2; gp=jax.grad(pot); tot=0.;acc=st=0
    for t in range(n):
        m=1+(t*7)%8; p=jnp.array([np.sin(3.*t+1),np.cos(5.*t)])*1.2; u=(np.sin(12.9*t)*43758.5)%1; q1,p1=q,p
        for i in range(m):
            p1=p1-.5*eps*gp(q1); q1=q1+eps*p1; p1=p1-.5*eps*gp(q1)
        if np.log(u)<float(jax.lax.stop_gradient(pot(q)+.5*p@p-pot(q1)-.5*p1@p1)): q=q1;acc+=1
        st+=m; tot=tot+pot(q)
    return q[0]+2*q[1]+tot,(q,acc,st)
for n in (0,1,2,12,40): (v,(q,a,s)),g=hmc(jnp.array([.2,.1]),.3,2.,n),jax.grad(lambda q,e,b:hmc(q,e,b,n)[0],(0,1,2))(jnp.array([.2,.1]),.3,2.); print('hmc',n,float(v),q.tolist(),a,s,g[0].tolist(),float(g[1]),float(g[2]))
# kalman: jax scan with jnp.linalg.inv; and for n = 50 the log likelihood as one Gaussian of 100 numbers
t=np.arange(1000.); Z=np.stack([np.sin(.02*t)+.1*np.cos(7*t),np.cos(.03*t)+.1*np.sin(5*t)],1); H=jnp.eye(2,4)
def kal(q,r,dt,Z):
    F=jnp.eye(4)+dt*jnp.eye(4,k=2)
    def f(c,z):
        m,P=c; m=F@m; P=F@P@F.T+q*jnp.eye(4); e=z-H@m; S=H@P@H.T+r*jnp.eye(2); K=jnp.linalg.solve(S,H@P).T
        return (m+K@e,P-K@S@K.T),(-.5*(e@jnp.linalg.solve(S,e)+jnp.linalg.slogdet(S)[1]+2*np.log(2*np.pi)),m+K@e)
    _,(l,m)=jax.lax.scan(f,(jnp.zeros(4),10*jnp.eye(4)),Z); return jnp.sum(l),m
for n in (1,2,50,1000):
    z=jnp.array(Z[:n]); l=kal(.01,.05,.1,z); g=jax.grad(lambda *a:kal(*a)[0],(0,1,2,3))(.01,.05,.1,z); s=jax.grad(lambda q,r:jnp.sum(jnp.sin(kal(q,r,.1,z)[1])),(0,1))(.01,.05)
    print('kalman',n,float(l[0]),l[1][-1].tolist(),[float(x) for x in g[:3]],g[3][0].tolist(),float(jnp.linalg.norm(g[3])),[float(x) for x in s])
def joint(q,r,dt,n):
    F=np.eye(4)+dt*np.eye(4,k=2);P=10*np.eye(4);C=np.zeros((2*n,2*n));Ps=[]
    for i in range(n): P=F@P@F.T+q*np.eye(4);Ps.append(P)
    for i in range(n):
        A=np.eye(4)
        for j in range(i,n): B=(A@Ps[i])[:2,:2]; C[2*j:2*j+2,2*i:2*i+2]=B; C[2*i:2*i+2,2*j:2*j+2]=B.T; A=F@A
    C+=r*np.eye(2*n); y=Z[:n].ravel(); return -.5*(y@np.linalg.solve(C,y)+np.linalg.slogdet(C)[1]+2*n*np.log(2*np.pi))
print('joint',joint(.01,.05,.1,50),(joint(.01+1e-6,.05,.1,50)-joint(.01-1e-6,.05,.1,50))/2e-6)
# gae: as a sum over all later steps, not a recursion
def gae(r,v,gm,lm,n,d):
    a=[]
    for t in range(len(r)):
        s=0.;f=1.
        for k in range(t,n):
            s=s+f*(r[k]+(0 if d[k] else gm*v[k+1])-v[k])
            if d[k]: break
            f=f*gm*lm
        a.append(s if t<n else 0*v[0])
    return jnp.stack(a)
r=jnp.sin(jnp.arange(12.)*1.3);v=jnp.cos(jnp.arange(13.)*.7);d=[i%5==3 for i in range(12)]
for n in (1,2,12):
    f=lambda r,v,g,l:(lambda a:jnp.sum(a*a)+jnp.sum(jnp.sin(a+v[:12])))(gae(r,v,g,l,n,d)); g=jax.grad(f,(0,1,2,3))(r,v,.97,.9)
    print('gae',n,gae(r,v,.97,.9,n,d).tolist(),g[0].tolist(),g[1].tolist(),float(g[2]),float(g[3]))
def nest(x,n,m):
    s=0.;k=0
    for i in range(n):
        for j in range(m):
            if s>6: return s*x[3],k
            if j>i: break
            s=s+jnp.sin(x[j%4]*(i+1.))**2; k+=1
            if k>40: return s-x[0],-k
        if s>5.5 and k>20: break
        if k==13: continue
        s=s+.1*x[i%4]**2
    return s,k
for sc in (.3,1.,2.):
    for n,m in ((1,1),(1,9),(3,9),(5,2),(7,7),(60,60)):
        x=sc*jnp.array([.5,1.1,-.7,.9]); s,k=nest(x,n,m); print('nested',sc,n,m,float(s),k,jax.grad(lambda x:nest(x,n,m)[0])(x).tolist())
