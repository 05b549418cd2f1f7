"""Small files that are right, and command lines: what `tests.fuzzing` spoils beside the project's own files."""

COLLECTIVES = "backend,op,ranks,bytes,seconds\ngloo,all-reduce,2,8,1e-5\ngloo,all-reduce,2,1024,2e-5\n"
PROFILE_HEADER = "model,accelerator,micro_batch,tp,layer_first,layer_last,forward_s,backward_s,update_s\n"
PROFILE_ROWS = tuple(
    f"opt-350m,GH200-96GB,1,1,{row}\n"
    for row in ("0,0,0.0002,0.0001,0.001", "1,24,0.002,0.004,0.001", "25,25,0.003,0.004,0.001")
)
PRICES = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
    "p4d.24xlarge,A100,8.0,96,1152,,21.9576,8.12,us-east-1,us-east-1a\n"
    "p5.48xlarge,H100,8,192,2048,,55.04,,us-east-2,us-east-2b\n"
)
KIND = "H100-SXM5-80GB"
FLAGS = (
    "llama3-8b --cluster dgx-h100:2 --precision bf16 --batch 64 --seq 4096 tp=2 pp=2 micro=1",
    "llama3-8b --cluster dgx-a100-80gb:1 --method lora --rank 8 --optimizer adamw --tokens 1B",
    "llama3-8b --cluster dgx-h100:4 --batch 128 --price $2/h --oom-risk 50% tp=4 zero=3 zero_scope=node recompute=full",
    "mixtral-8x7b --cluster dgx-h100:4 --imbalance 1.2 --precision fp8 ep=8 tp=1 pp=2 zero=1 recompute=full",
    "gpt2-xl --cluster dgx-a100-40gb:1 --cluster dgx-v100:1 "
    "group=dgx-a100-40gb:layers=32,dgx-v100:layers=16 --batch 64",
)
"""Estimates; the third shards within a node and replicates across nodes."""
FITS = (
    "gpt2-xl --method qlora --seq 4k --most 1 --rank 8",
    "--on RTX-4090:1 --method lora --rank 16 --top 3",
    "llama3-8b --on H100-SXM5-80GB:2 --method dora --optimizer paged-adamw --batch 8 --tokens 5M --lengths 600/2k",
    "bert-large --on V100-SXM2-16GB:4 --method pretrain --seq 512 --oom-risk 10%",
)
PURCHASES = (
    "--model llama3-8b --tokens 20B --budget $5M --deadline 60d --node p5.48xlarge --ways on-demand,spot",
    "--model gpt2-xl --tokens 2B --method lora --batch 64 --seq 2k --node hgx-h100 --ways buy --power 400kW",
    "--model llama3-8b --tokens 1B --node nebius-8x-h100 --objective carbon --deadline 90d --survive N-1",
)
PORTFOLIOS = (
    """currency = "EUR"\nas_of = "2026-11-20"\nhorizon = "6 months"\nobjective = "cost"\nresale = 0.9
[exchange]\nusd = 1.08\ndate = "2026-11-20"\nsource = "a bank"\n[limits]\nmonthly = "900k EUR"\nbudget = "4M EUR"
[[workloads]]\nname = "base"\nmodel = "llama3-8b"\ntokens = "200B"\ndeadline = "150 d"
[[candidates]]\nnode = "hgx-h100"\nways = ["buy"]\ncounts = [2, 4]\ndelivery = "1 month"
[[candidates]]\nnode = "nebius-8x-h100"\nways = ["on-demand", "spot"]\nat_most = 4
""",
    """currency = "USD"\nas_of = "2026-11-20"\nhorizon = "12 months"\nobjective = "time"\n[limits]\nbudget = "$900k"
[[owned]]\nnode = "dgx-a100-80gb"\ncount = 1
[[workloads]]\nname = "one"\nmodel = "gpt2-xl"\ntokens = "20B"\nrelease = "10 d"\ndeadline = "90 d"\nprecision = "bf16"
[[workloads]]\nname = "two"\nmodel = "llama3-8b"\nmethod = "lora"\nrank = 16\ntokens = "1B"
[[candidates]]\nnode = "p5.48xlarge"\nways = ["on-demand", "spot"]\nat_most = 2
""",
)
"""With months, sales, a budget of each month; with machines that are there."""
STUDY = """name = "x"\nobjectives = ["cost"]\ntrials = 2\n[base]\nnode = "dgx-h100"\ncount = 1\n[axes]
"accelerator.memory" = ["48 GiB", "80 GiB"]
"fabric.nic_bandwidth" = { from = "100 Gbit/s", to = "400 Gbit/s", step = "100 Gbit/s" }
[[workloads]]\nmodel = "llama3-8b"\nmethod = "lora"\nrank = 16\nbatch = 32\nsequence = 2048
[costs]\nbasis = "purchase"\naccelerator = "$3,000"\nnode = "$20,000"\n[costs.per]\n"accelerator.memory" = "$50 per GiB"
"""
FORMS = (
    "model=llama3-8b&cluster=dgx-h100%3A1&batch=64&seq=8k&tokens=1T&price=%242.10%2Fh&pin=tp%3D8%2Ccp%3D1%2Cmicro%3D1",
    "model=gpt2-xl&cluster=dgx-a100-40gb%3A1&tokens=1B&deadline=900+d&max_cost=%24500k&pin=cp%3D1%2Ctp%3D1",
)
