import torch, time, json, os, itertools, statistics as st
from certhead.kernels.quantize import quantize
from certhead.kernels import torch_stages as ts
from certhead.kernels.triton_head import TritonPipeline, Tile, INTERPRETED
from certhead.pyref.models import ANY_ORDER
dev='cuda'; torch.manual_seed(0)
V,K=248320,2560
w=(torch.randn(V,K,device=dev)*0.0128).bfloat16()
def states(M,seed):
    g=torch.Generator(device=dev).manual_seed(seed)
    n=torch.randn(M,K,generator=g,device=dev)
    idx=torch.randint(0,V,(M,),generator=g,device=dev)
    cos=0.08+0.12*torch.rand(M,1,generator=g,device=dev)
    d=w[idx].float(); d=d/d.norm(dim=1,keepdim=True); n=n/n.norm(dim=1,keepdim=True)
    return (159*(n*(1-cos**2).sqrt()+d*cos)).bfloat16()
t=time.time(); group=64
c=quantize(w,group); torch.cuda.synchronize(); print("quantize s",time.time()-t)
g=ANY_ORDER.gamma_num(K)
p=TritonPipeline(w,c,g)
def timeit(fn,n=10,reps=15):
    fn(); torch.cuda.synchronize()
    s=torch.cuda.Stream()
    with torch.cuda.stream(s):
        fn(); 
        gr=torch.cuda.CUDAGraph()
        with torch.cuda.graph(gr,stream=s):
            for _ in range(n): fn()
    torch.cuda.synchronize()
    ts_=[]
    for _ in range(reps):
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record(); gr.replay(); b.record(); torch.cuda.synchronize(); ts_.append(a.elapsed_time(b)*1e3/n)
    return st.median(ts_)
res={}
# correctness
for M in (1,5,16,33):
    h=states(M,M)
    L=ts.limbs(h,group,g); best,tops=ts.screen(c,L,16)
    p.run(h); torch.cuda.synchronize()
    b=p.best[:M]; bb=torch.where(b<0,(-b)|-2**31,b).view(torch.float32)
    print("M",M,"limbs",torch.equal(p.hi[:M],L.hi),torch.equal(p.lo[:M],L.lo),torch.equal(p.group_codes[:M,:L.group_codes.shape[1]],L.group_codes),torch.equal(p.tail_codes[:M].long(),L.tail_codes),
      "tops",torch.equal(p.tops[:M],tops) if M==p.tops.shape[0] else torch.equal(p.tops.view(-1)[:M*p.n_blocks].view(M,-1),tops),"best",torch.equal(bb,best))
bad=0;tot=0;cand=[]
for M in (1,2,3,4,7,8,16,17,32,48,64,96,128,192,256):
    for s in range(6):
        h=states(M,1000*M+s); tok=p.run(h).clone(); stock=(h@w.T).argmax(-1)
        bad+=int((tok!=stock).sum()); tot+=M; cand+=p.counts[:M].tolist()
print("tokens differ",bad,"of",tot,"blocks mean",sum(cand)/len(cand),"max",max(cand))
for M in (1,4,16,32,64,128,256):
    hs=states(M,7*M); p.run(hs)
    r={'stock':timeit(lambda:(hs@w.T).argmax(-1)),'limbs':timeit(lambda:p.limbs(hs)),'decide':timeit(lambda:p.decide(M))}
    p.limbs(hs);p.screen(M)
    for ch in (256,1024,4096):
        for bk,sg in ((128,4),(256,3),(64,6)):
            try: r[f'resolve{ch}/{bk}/{sg}']=timeit(lambda:p.resolve(hs,ch,bk,sg))
            except Exception as e: r[f'resolve{ch}/{bk}/{sg}']=str(e)[:50]
    if M<=16: tiles=[(64,16,256,4,3),(64,16,256,4,4),(128,16,128,4,4),(128,16,256,4,2),(128,16,256,8,3),(64,16,128,4,6),(32,16,256,4,4),(64,16,512,4,2),(256,16,128,8,3)]
    elif M<=32: tiles=[(64,32,256,4,3),(128,32,128,4,3),(128,32,128,4,4),(128,32,128,8,4),(64,32,128,4,5),(128,32,256,8,3),(256,32,128,8,3)]
    else: tiles=[(128,64,128,4,3),(128,64,128,8,3),(128,64,128,8,4),(64,64,128,4,4),(64,64,256,4,3),(128,64,256,8,2),(256,64,128,8,3),(128,64,64,8,5)]+([(128,128,128,8,3),(64,128,128,4,3),(64,128,128,8,3)] if M>64 else [])
    for tl in tiles:
        try: r['screen'+str(tl)]=timeit(lambda:p.screen(M,Tile(*tl)),n=5,reps=9)
        except Exception as e: r['screen'+str(tl)]=str(e)[:60]
    r['all']=timeit(lambda:p.run(hs))
    print(M,{k:(round(v,1) if not isinstance(v,str) else v) for k,v in r.items()},flush=True)
    res[M]=r
json.dump(res,open(os.environ['OUT']+'/p1.json','w'))
