"""Scripts that start a training command: what their branches, variables and functions make of it, read and run."""

import subprocess
import time
from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import reading
from planner.launchers.reading.command import options
from planner.launchers.reading.shell import sandbox
from planner.launchers.reading.shell.assignments import UNSEEN as OPEN
from planner.launchers.reading.shell.expansion import Expander, computed
from planner.launchers.reading.shell.script import Branches, script
from tests.asking import ask

START = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py"


def started(text: str) -> list[str]:
    """The one command of a script."""
    (way,) = {commands for commands in script(text).ways if commands}
    (words,) = way
    return [*words]


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ('"${A[@]}"', ["--x 1", "--y"]),
        ("${A[@]}", ["--x", "1", "--y"]),
        ('"${A[1]}"', ["--y"]),
        ('x$S"y z"', ["x", "a", "b", "y z"]),
        ("$E", []),
        ('"$E"', [""]),
        ("$((N * 2 + $N))", ["24"]),
        ("$((N / 3))", ["2"]),
        ("$((N / 0))", ["$((N / 0))"]),
        ("$((Z + 1))", ["$((Z + 1))"]),
        ('"${Q:-4}"', ["4"]),
        ("${E-4}", []),
        ("${E:-4}", ["4"]),
        ("${N:+yes}", ["yes"]),
        ("$Z/checkpoints", ["$Z/checkpoints"]),
        ("$(ls -l)", ["$(ls -l)"]),
        ("'$N'", ["$N"]),
        ("${N%%8}", ["${N%%8}"]),
    ],
)
def test_words_are_those_of_a_shell(raw: str, fields: list[str]) -> None:
    values = {"A": ("--x 1", "--y"), "S": " a  b ", "E": "", "N": "8"}
    assert Expander(values).fields(raw) == fields


def test_the_words_are_bashs_own() -> None:
    """The same script through bash: every word, also where quotes, arrays and sums meet."""
    text = """
N=8; S=" a  b "; A=("--x 1" --y)  # a comment with 'quotes
A+=( # another
  --z "$((N * (2 + 3) % 7))" --w$S
)
if [[ "$N" == 8 && -z "$UNSET" ]]; then A+=(--then "${UNSET:-d e}" ${UNSET2:-f g}); else A+=(--else); fi
case "$N" in 1|2) A+=(--few) ;; [0-9]) A+=(--digit) ;; *) A+=(--many) ;; esac
for i in 1 2; do A+=("--loop$i"); done
give() { A+=("--given=$1" "$#"); }
give 'one two' three
run ${A[@]} "${A[@]}" pre"$N"'$N'\\$N "$@"
"""
    real = subprocess.run(
        ["bash", "-c", f"run() {{ printf '%s\\n' \"$@\"; }}\n{text}"], capture_output=True, text=True, check=True
    )
    assert started(text)[1:] == real.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "number"), [("-7 / 2", -3), ("-7 % 2", -1), ("2 ** 99", None), ("1 + x", None), ("(1", None), ("010", 10)]
)
def test_sums_are_whole(text: str, number: int | None) -> None:
    assert computed(text) == number


BRANCHED = f"""
FP8=${{FP8:-0}}
if [ "$MODE" = big ]; then TP=8; else TP=4; fi
ARGS=(--num-layers 4 --micro-batch-size 1)
if [ $FP8 -eq 1 ]; then ARGS+=(--fp8-format hybrid); fi
if [ -f /data/corpus ]; then ARGS+=(--data-path /data/corpus); else ARGS+=(--mock-data); fi
if [ -z "$1" ] && [ ! -d /checkpoints ]; then echo usage; exit 1; fi
{START} --tensor-model-parallel-size $TP "${{ARGS[@]}}"
"""


def test_branches_that_differ_in_what_matters_are_refused() -> None:
    with pytest.raises(WrongQuestion) as caught:
        reading.read("megatron", BRANCHED)
    assert "with --tensor-model-parallel-size 8 and with --tensor-model-parallel-size 4" in str(caught.value)
    assert "--run-script" in str(caught.value)


def test_a_variable_decides() -> None:
    """The other branches differ only in data, or start nothing."""
    for mode, tp in (("big", 8), ("small", 4)):
        found = reading.read("megatron", BRANCHED, reading.Started(environment={"MODE": mode}))
        assert (found.settings["tp"], found.precision, found.ranks) == (tp, "fp32", 16)
    defaults, fused = found.assumed
    assert defaults == "the script's own defaults: FP8 0"
    assert fused == "no --cross-entropy-loss-fusion: predicted with, as measured runs had it"
    wide = reading.Started(environment={"MODE": "big", "FP8": "1"})
    assert reading.read("megatron", BRANCHED, wide).precision == "fp8-delayed"


def test_a_variable_that_no_branch_has_set_is_empty() -> None:
    """One that the script sets elsewhere; of others nobody knows."""
    text = f'if [ "$F" = yes ]; then X="--fp8-format hybrid"; Y+=(--fp16); fi\n{START} --num-layers 6 $X ${{Y[@]}}'
    for value, precision in (("yes", "fp8-delayed"), ("no", "fp32")):
        assert reading.read("megatron", text, reading.Started(environment={"F": value})).precision == precision
    with pytest.raises(WrongQuestion, match=r"--num-layers \$TP: its value is not in the text"):
        reading.read("megatron", f"TP=$TP\n{START} --num-layers $TP")


@pytest.mark.parametrize(
    "text",
    [
        f'CMD="{START} --num-layers 6"\neval $CMD',
        f'CMD="{START} --num-layers 6"\n$CMD | tee log.txt 2>&1 &',
        f'sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=2\nsrun bash -c "cd x; {START} --num-layers ${{N:-6}}"\nEOF\n',
        f"run() {{\n  {START} --num-layers $1\n}}\nrun 6 || exit 1",
        f"while [[ $# -gt 0 ]]; do case $1 in --n) N=$2; shift 2 ;; *) exit 1 ;; esac; done\n{START} --num-layers 6",
        f"export N=6 && mkdir -p logs && {START} \\\n  --num-layers $N > logs/$(date +%s).txt",
    ],
)
def test_commands_inside_others_are_found(text: str) -> None:
    words = [words for way in script(text).ways for words in way]
    assert words and all("6" in each[each.index("--num-layers") + 1 :] for each in words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("if true; then x", "elif or else or fi is missing before ''"),
        ("echo 'x", "' in line 1 is not closed"),
        ("A=(1 2", "( in line 1 is not closed"),
        ("case x in", "esac is missing"),
        ("f() { f; }\nf", "starts itself"),
        ("\n".join(f'if [ -f /{n} ]; then A="${{A}}{n}"; fi' for n in range(9)), "too many branches"),
        ("if a; then " * 99, "nested too deeply"),
        ('x "$(' + '"$(' * 99, "nested too deeply"),
        ("\n".join(f"{START} --num-layers {n}" for n in (1, 2)), "with --num-layers 1 and with --num-layers 2"),
        (f"{START} --num-layers $((X * 2))", "--num-layers $((X * 2)): its value is not in the text"),
    ],
)
def test_what_is_no_script_is_told(text: str, says: str) -> None:
    with pytest.raises(WrongQuestion) as caught:
        reading.read("megatron", text)
    assert says in str(caught.value)


def test_files_that_a_script_reads_in_its_midst_are_told() -> None:
    found = reading.read("megatron", f"source common.sh\n{START} --num-layers 6")
    assert found.assumed[0].startswith("common.sh: the script reads it in its midst")


def sandboxed() -> bool:
    try:
        sandbox.ran(Path(__file__).parent / "data" / "start.sh")
    except WrongQuestion as error:
        return "this system" not in str(error) and "util-linux" not in str(error)
    return True


needs_sandbox = pytest.mark.skipif(not sandboxed(), reason="no namespaces for this user")
RUN = """
source common.sh
mkdir -p /checkpoints made
echo x > made/file || exit 3
echo "$0" > seen.txt
[ -f pretrain_gpt.py ] || exit 4
srun --mpi=pmix bash -c "python -m torch.distributed.run --nproc_per_node 4 pretrain_gpt.py --num-layers $LAYERS $*"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "common.sh").write_text("LAYERS=$((2 * ${HALF:-3}))\n", encoding="utf-8")
    (tmp_path / "pretrain_gpt.py").write_text("", encoding="utf-8")
    (tmp_path / "run.sh").write_text(RUN, encoding="utf-8")
    return tmp_path


@needs_sandbox
def test_a_script_that_is_run_shows_what_it_starts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = reading.read("megatron", "run.sh", reading.Started(["--micro-batch-size", "2"], {"HALF": "5"}, run=True))
    assert (found.settings["micro"], found.ranks) == (2, 4)
    (words,) = sandbox.ran(folder / "run.sh").ways[0]
    assert words[words.index("--num-layers") + 1] == "6"
    assert sorted(path.name for path in folder.iterdir()) == ["common.sh", "pretrain_gpt.py", "run.sh"]
    answer = ask(capsys, "import run.sh --from megatron --cluster dgx-h100:1 --run-script --env HALF")
    assert (answer.code, "--env HALF: NAME=VALUE is expected" in answer.err) == (2, True)


@needs_sandbox
def test_a_script_that_is_run_reaches_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, no files of others, no rights, none of its changes."""
    outside = folder / "outside"
    outside.mkdir()
    inside = folder / "inside"
    inside.mkdir()
    hostile = f"""
touch {outside}/x /usr/x; mount -o remount,rw,bind /usr; touch /usr/x; rm -rf {inside}/keep; rm -rf /usr/bin/env
torchrun --seen "$(ls {outside} {folder} /root /etc 2>&1 | tr '\\n' ' ')" --net "$(cat /proc/net/dev | grep -c eth)" \\
  --rights "$(grep CapEff /proc/self/status)" --usr "$(ls /usr/x 2>&1)" --key "$SECRET"
"""
    (inside / "hostile.sh").write_text(hostile, encoding="utf-8")
    (inside / "keep").write_text("", encoding="utf-8")
    monkeypatch.chdir(inside)
    monkeypatch.setenv("SECRET", "s")
    (words,) = sandbox.ran(inside / "hostile.sh").ways[0]
    said = dict(zip(words[1::2], words[2::2], strict=True))
    assert "cannot access" in said["--seen"] and "common.sh" not in said["--seen"] and "shadow" not in said["--seen"]
    assert said["--net"] == "0" and said["--key"] == ""
    assert said["--rights"].split() == ["CapEff:", "0" * 16]
    assert "cannot access" in said["--usr"]
    assert (inside / "keep").exists() and not [*outside.iterdir()] and not Path("/usr/x").exists()


@needs_sandbox
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo no >&2; exit 7", "starts nothing that trains (it ended with 7: no)"),
        ("while :; do :; done", "it took too long"),
        ("x=$(head -c 60000000 /dev/zero | tr '\\0' a); while :; do :; done", "too much memory"),
        ("yes > /tmp/much", "starts nothing that trains"),
    ],
)
def test_a_script_that_starts_nothing_is_told(
    text: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 5 if "long" in says else 60)
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 50_000_000)
    began = time.monotonic()
    (folder / "bad.sh").write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion) as caught:
        sandbox.ran(folder / "bad.sh")
    assert says in str(caught.value)
    assert "long" in says or time.monotonic() - began < sandbox.SECONDS  # memory ends it, not time


@needs_sandbox
def test_a_script_that_nobody_can_read_says_what_the_sandbox_found(folder: Path) -> None:
    """Its branches are too many to follow, and it starts nothing without an argument: the second is what to mend."""
    branches = "\n".join(f'if [ -f /{n} ]; then A="${{A}}{n}"; fi' for n in range(9))
    (folder / "many.sh").write_text(f'{branches}\n[ "$1" ] || exit 1\n{START} --num-layers 4 $A\n', encoding="utf-8")
    with pytest.raises(WrongQuestion, match=r"^too many branches to follow; run in the sandbox: .*--arg and --env"):
        reading.read("megatron", str(folder / "many.sh"))


@needs_sandbox
def test_the_clock_ends_a_script_before_a_bound_on_its_processor(folder: Path) -> None:
    """Each process of a script may take five seconds of a processor more than all of it may take by the clock."""
    text = 'torchrun pretrain_gpt.py --seconds "$(ulimit -t)" --num-layers 4\n'
    (folder / "bound.sh").write_text(text, encoding="utf-8")
    (words,) = sandbox.ran(folder / "bound.sh").ways[0]
    assert words[words.index("--seconds") + 1] == "25"


def test_where_there_is_no_sandbox_nothing_is_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(WrongQuestion, match="needs Linux with unshare"):
        sandbox.ran(folder / "run.sh")
    with pytest.raises(WrongQuestion, match="needs the name of a script"):
        reading.read("megatron", "--num-layers 2", reading.Started(run=True))
    with pytest.raises(WrongQuestion, match="a file, not a script"):
        reading.read("deepspeed", "{}", reading.Started(run=True))


def test_substituted_files_and_many_arguments_are_words() -> None:
    text = "source <(curl -s http://x) && exec > >(tee log)\ntorchrun t.py --micro-batch-size ${11} --num-layers 4"
    commands = script(text, [str(number) for number in range(1, 13)])
    assert commands.ways[0][-1][-3:] == ("11", "--num-layers", "4")


def test_a_job_that_queues_itself_again_is_read_once(folder: Path) -> None:
    sandboxed()
    again = 'set -e\ncp /nowhere/a b\nif $(true); then sbatch "$0"; fi\nx=$1\ntorchrun pretrain_gpt.py --num-layers $x'
    (folder / "job.sh").write_text(again, encoding="utf-8")
    assert len(sandbox.ran(folder / "job.sh", ["4"]).ways[0]) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(TP=4)", "2"),
        ("f() { local TP=4; }\nf", "2"),
        ("f() { TP=4; }\nf", "4"),
        ("for i in 4 8; do TP=$i; break; done", "4"),
        ("for i in 4 8; do if [ $i = 8 ]; then continue; fi; TP=$i; done", "4"),
        ("TP=4 true --x", "2"),
        ('declare "TP=4"', "4"),
        ('export "TP"=4', "4"),
        ("let TP=TP*2", OPEN),
        ("((TP*=2))", OPEN),
        ("((TP++))", OPEN),
        ("printf -v TP %d 4", OPEN),
        ("read -r TP PP <<< '4 2'", OPEN),
        ("TP[0]=4", OPEN),
    ],
)
def test_variables_are_those_of_a_shell_or_left_open(text: str, value: str) -> None:
    """The values are bash's (5.2); what is left open is read in the sandbox."""
    ways = script(f"TP=2\n{text}\nrun --tp $TP").ways
    assert {words[-1] for way in ways for words in way if words[0] == "run"} == {value}


def test_what_only_a_shell_knows_is_no_option() -> None:
    with pytest.raises(Branches, match="--run-script"):
        script("export $(cat .env)")
    with pytest.raises(WrongQuestion, match="f: a function that branches"):
        script("if nvidia-smi; then f() { TP=4; }; else f() { TP=2; }; fi")
    for word in ("$(cat args.txt)", "@args.txt", "\u2013-bf16"):
        with pytest.raises(Branches, match="options may stand in it"):
            options(["--micro-batch-size", "1", word], {"micro-batch-size"})
    assert options(["--data-path", "$(cat args.txt)"], {"micro-batch-size"}) == {"data-path": ["$(cat args.txt)"]}


def test_slurm_counts_its_lines_up_to_the_first_command() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=4\n\n# why\nmodule load x\n#SBATCH --nodes=2\nrun --n $SLURM_NNODES"
    assert script(text).ways[0][-1][-1] == "4"


def test_what_sbatch_wraps_is_a_script() -> None:
    assert started('sbatch -N 2 --wrap="torchrun t.py --tp 4"') == ["torchrun", "t.py", "--tp", "4"]
