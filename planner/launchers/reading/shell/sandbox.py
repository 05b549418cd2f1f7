"""A shell script run where it can do nothing, for the commands that it starts.

Linux's namespaces of the user (``unshare``) make a machine of their own for it: no network, no other processes, no
rights, a file system in memory in which there are only system programs and the script's own folder, whose changes
are dropped. Trainers and launchers in it are stubs that write down their arguments.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.launchers.reading.shell.script import Script

SECONDS = 20
MORE_SECONDS = 5
"""Seconds of a processor beyond those of the clock, which then ends all of it and not one process in it."""
MEGABYTES = 64
"""Of all that the script writes, and of each of its files."""
MEMORY_BYTES = 1_000_000_000
"""Bytes that all processes of the script hold together; each has as much address space."""
LOOK_S = 0.05
"""Seconds between two looks at them."""
TRAINERS = ("torchrun", "python", "python3", "deepspeed", "ds", "accelerate", "uv")
"""What is written down instead of being started."""
WRAPPERS = ("srun", "mpirun", "mpiexec", "nsys", "numactl", "apptainer", "singularity", "enroot", "taskset")
"""What starts the command behind its own options."""
SILENT = ("pip", "pip3", "conda", "module", "ml", "wandb", "hf", "huggingface-cli", "wget", "curl", "docker", "sleep")
"""What prepares a machine: nothing happens."""
FORGIVING = ("cp", "mv", "mkdir", "rsync", "find", "ln", "chmod")
"""What works, and never ends a script: most folders that it knows are not here."""
_FORGIVE = """#!/bin/bash
/bin/NAME "$@" 2>/dev/null || true
"""
_WRITTEN = "@file"
"""Name under which a file that a command names is written down, beside the command."""
_RECORD = f"""#!/bin/bash
for word; do
    word=${{word#*=}}
    case $word in *.json) [ -f "$word" ] && printf '%s\\0' 1 {_WRITTEN} "$(head -c 100000 "$word")" >&FD ;; esac
done
printf '%s\\0' "$#" "${{0##*/}}" "$@" >&FD
"""
_WRAP = """#!/bin/bash
for ((i = 1; i <= $#; i++)); do
    word=${!i}; word=${word##*/}
    case $word in
        bash | sh | env | timeout | TRAINERS | WRAPPERS) exec "$word" "${@:i+1}" ;;
        *.sh) exec bash "${@:i}" ;;
    esac
done
"""
_BATCH = """#!/bin/bash
[ -z "$CLUSTERWRIGHT_QUEUED" ] || exit 0  # a job that queues itself again
export CLUSTERWRIGHT_QUEUED=1
for word; do
    case $word in --wrap=*) exec bash -c "${word#--wrap=}" ;; esac
    [ -f "$word" ] && exec bash "$word"
done
exec bash
"""
_HOSTS = "#!/bin/bash\necho node0\n"
_SETUP = r"""
set -e
box=$1 folder=$2 stubs=$3 record=$4
shift 4
mount -t tmpfs -o size=MEGABYTESm,nr_inodes=20000,mode=755 tmpfs "$box"
mkdir -p "$box/tmp" "$box/home" "$box/proc" "$box/dev" "$box/etc" "$box/.up" "$box/.work"
bound() { mkdir -p "$box$2"; mount --bind "$1" "$box$2"; mount -o remount,bind,ro,nosuid,nodev "$box$2"; }
for part in /bin /sbin /lib /lib32 /lib64 /usr /etc/alternatives; do
    if [ -L "$part" ]; then cp -d "$part" "$box$part"; elif [ -d "$part" ]; then bound "$part" "$part"; fi
done
for device in null zero urandom; do touch "$box/dev/$device"; mount --bind "/dev/$device" "$box/dev/$device"; done
mount -t proc proc "$box/proc"
ln -s /proc/self/fd "$box/dev/fd"
bound "$stubs" /stubs
mkdir -p "$box$folder"
case $folder in
    *[,:\\\"]*) bound "$folder" "$folder" ;;
    *)  options="lowerdir=$folder,upperdir=$box/.up,workdir=$box/.work"
        mount -t overlay overlay -o "$options,userxattr" "$box$folder" 2>/dev/null || bound "$folder" "$folder" ;;
esac
ulimit -c 0 -t CPU_SECONDS -f $((MEGABYTES * 1024)) -v 1048576 -n 256
ulimit -u 1024 2>/dev/null || true
printf '0\0ready\0' >&"$record"
cd /
exec chroot "$box" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all \
    bash -c 'cd "$1" && shift && exec bash "$@"' bash "$folder" "$@"
"""


def ran(path: Path, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Script:
    """The commands that a script starts with these arguments and these variables, and no others.

    It runs in the current folder where it lies below that, else in its own.

    Raises:
        WrongQuestion: the kernel offers no namespaces to this user, or the script starts nothing, or takes too long.
    """
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        raise WrongQuestion("--run-script: needs Linux with unshare and setpriv (util-linux)")
    path = path.resolve()
    here = Path.cwd().resolve()
    folder = here if path.is_relative_to(here) and here != Path("/") else path.parent
    with tempfile.TemporaryDirectory() as top:
        box, stubs = Path(top) / "box", Path(top) / "stubs"
        box.mkdir()
        stubs.mkdir()
        with (Path(top) / "record").open("w+b", buffering=0) as record, (Path(top) / "errors").open("w+b") as errors:
            os.set_blocking(record.fileno(), True)
            _write_stubs(stubs, record.fileno())
            setup = _SETUP.replace("MEGABYTES", str(MEGABYTES)).replace("CPU_SECONDS", str(SECONDS + MORE_SECONDS))
            inside = [str(box), str(folder), str(stubs), str(record.fileno()), str(path), *arguments]
            code = _run(["bash", "-c", setup, "setup", *inside], environment or {}, record.fileno(), errors.fileno())
            found = [*_recorded((Path(top) / "record").read_bytes())]
            last = (Path(top) / "errors").read_bytes()[-2000:].decode(errors="replace").strip().splitlines()[-1:]
    if not found:
        raise WrongQuestion(f"--run-script: this system offers no sandbox to this user ({''.join(last):.120})")
    documents = tuple(text for name, *texts in found if name == _WRITTEN for text in texts)
    found = [words for words in found if words[0] != _WRITTEN]
    if len(found) == 1:
        why = (
            "it took too long or too much memory"
            if code is None
            else f"it ended with {code}" + (f": {last[0]:.120}" if last else "")
        )
        raise WrongQuestion(f"{path.name}: the script starts nothing that trains ({why}); --arg and --env say more")
    return Script((tuple(found[1:]),), documents=documents)


def _write_stubs(folder: Path, record: int) -> None:
    wrap = _WRAP.replace("TRAINERS", " | ".join(TRAINERS)).replace("WRAPPERS", " | ".join(WRAPPERS))
    texts = {
        **dict.fromkeys(SILENT, "#!/bin/bash\n"),
        **dict.fromkeys(TRAINERS, _RECORD.replace("FD", str(record))),
        **dict.fromkeys(WRAPPERS, wrap),
        **{name: _FORGIVE.replace("NAME", name) for name in FORGIVING},
        **{"sbatch": _BATCH, "scontrol": _HOSTS},
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)


def _run(command: Sequence[str], environment: Mapping[str, str], record: int, errors: int) -> int | None:
    """The exit code; None where it took too long. Everything that it started ends with it."""
    namespaces = ["--user", "--map-root-user", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    usual = {"PATH": "/stubs:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**environment, **usual},
        pass_fds=[record],
        start_new_session=True,
    )
    over = time.monotonic() + SECONDS
    try:
        while process.poll() is None:
            if time.monotonic() > over or _held_bytes(process.pid) > MEMORY_BYTES:
                return None
            time.sleep(LOOK_S)
        return process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _held_bytes(parent: int) -> int:
    """Bytes in memory of a process and of all that it and its own have begun."""
    held: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            above = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            pages = (folder / "statm").read_text().split()[1]
        except (OSError, IndexError):  # it has ended meanwhile
            continue
        held[int(folder.name)] = int(above), int(pages)
    theirs = {parent}
    while more := {number for number, (above, _) in held.items() if above in theirs} - theirs:
        theirs |= more
    return os.sysconf("SC_PAGE_SIZE") * sum(held[number][1] for number in theirs if number in held)


def _recorded(raw: bytes) -> Iterator[tuple[str, ...]]:
    """Commands in the record: the number of their arguments, their name, the arguments."""
    parts = raw.decode(errors="replace").split("\0")
    at = 0
    while at + 1 < len(parts):
        count = int(parts[at]) if parts[at].isdecimal() and len(parts[at]) < 7 else len(parts)
        yield tuple(parts[at + 1 : at + 2 + count])
        at += 2 + count
