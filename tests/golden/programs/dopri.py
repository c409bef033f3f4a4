# Reference: scipy DOP853 at rtol 1e-13 for states; gradients by integrating the forward sensitivity equations (independent of AD).
import numpy as np
from scipy.integrate import solve_ivp
def sens(f,J,P,y0,p,t1):
    n,m=len(y0),len(p)
    def rhs(t,s):
        y=s[:n]; S=s[n:].reshape(n,m+n)
        return np.concatenate([f(y,p),(J(y,p)@S+np.concatenate([P(y,p),np.zeros((n,n))],1)).ravel()])
    s0=np.concatenate([y0,np.concatenate([np.zeros((n,m)),np.eye(n)],1).ravel()])
    s=solve_ivp(rhs,(0,t1),s0,method='DOP853',rtol=1e-13,atol=1e-13).y[:,-1]
    return s[:n],s[n:].reshape(n,m+n)
lv=lambda y,p:np.array([p[0]*y[0]-p[1]*y[0]*y[1],p[2]*y[0]*y[1]-p[3]*y[1]])
lJ=lambda y,p:np.array([[p[0]-p[1]*y[1],-p[1]*y[0]],[p[2]*y[1],p[2]*y[0]-p[3]]])
lP=lambda y,p:np.array([[y[0],-y[0]*y[1],0,0],[0,0,y[0]*y[1],-y[1]]])
vf=lambda y,p:np.array([y[1],p[0]*(1-y[0]**2)*y[1]-p[1]*y[0]])
vJ=lambda y,p:np.array([[0,1],[-2*p[0]*y[0]*y[1]-p[1],p[0]*(1-y[0]**2)]])
vP=lambda y,p:np.array([[0,0],[(1-y[0]**2)*y[1],-y[0]]])
np.set_printoptions(precision=13)
for t1 in (0.02,1.,10.):
    y,S=sens(lv,lJ,lP,np.array([1.,1]),np.array([1.5,1,1,3]),t1)
    print('lotka',t1,y.tolist(),(S[0]+2*S[1]).tolist())
y,S=sens(vf,vJ,vP,np.array([2.,0]),np.array([5.,1]),8.)
print('vdp',y.tolist(),S[0].tolist())
