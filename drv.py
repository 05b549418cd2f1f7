
import sys,resource,time
resource.setrlimit(resource.RLIMIT_AS,(6<<30,6<<30))
sys.path.insert(0,"/work/h/R")
from pathlib import Path
from planner.launchers.reading import recipes
from planner.launchers.reading.started import Started
from planner.base.errors import WrongQuestion
t=time.process_time()
try:
    r=recipes.read("megatron-bridge",open(sys.argv[1]).read(),Path("/tmp/rdr4/empty"),Started(()))
    s="OK"
except WrongQuestion as e: s="REF "+str(e)[:90]
except BaseException as e: s="!!! "+repr(e)[:120]
print(round(time.process_time()-t,1),"s",resource.getrusage(resource.RUSAGE_SELF).ru_maxrss>>10,"MB",s)
