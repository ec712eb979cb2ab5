"""`grpo-doctor attach`: why is my job stuck? Which rank, which line of code, and what to do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor.cli.console import inform, say
from grpo_doctor.cli.output import STDOUT, given_path, write_binary, write_bytes
from grpo_doctor.errors import PermissionNeededError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor.hang.model.view import JobView
    from grpo_doctor.hang.verdict import Diagnosis
    from grpo_doctor_probes.evidence import Evidence

NAME = "attach"
SUMMARY = "show why a job is stuck: which rank, which line of code, what to do"
DESCRIPTION = """\
Samples a training job on this host twice and reports whether it is healthy, slow or stuck. It names
the rank that blocks the job, the line of code, the cause and the fix. The job needs no preparation:
any torch.distributed job of any framework, in any Python environment.

Without PID, attach finds the job. With several jobs, give one PID of a rank or the launcher.
attach only reads, and never runs code in the job. If the job seems stuck, attach reads torch's
flight recorders from memory. It pauses threads of GPU ranks that use a core for less than a
millisecond, to see whether they compute or wait for the GPU. It pauses a rank that nothing else
explains for about a second, to read its C++ frames. --no-stop skips both.
"""
EPILOG = """\
examples:
  grpo-doctor attach                          the job on this host
  grpo-doctor attach 4711                     the job that process 4711 belongs to
  grpo-doctor attach --json | jq .verdict     for programs
  grpo-doctor attach -o hang-1                save the page, the evidence and the verdict
  grpo-doctor attach --replay hang-1          explain it again, anywhere, without the job
  grpo-doctor attach --replay /shared/hang/*  one verdict from the bundles of all hosts
  grpo-doctor attach --dumps /shared/dumps    only flight-recorder dumps, of a job that died

a job on several hosts, with one command (grpo-doctor must be installed on them):
  grpo-doctor attach --slurm 4711             all nodes of a Slurm job, by srun --overlap
  grpo-doctor attach --ray                    all nodes of the Ray cluster of this machine
  grpo-doctor attach --kube app=train/ml      the pods with this label in namespace ml
  grpo-doctor attach --ssh node1,node2        these hosts, by ssh without a password
  grpo-doctor attach --ssh HOSTFILE           the hosts of a hostfile of DeepSpeed or MPI

where none of these reaches the hosts, run attach on all of them at the same time, each with
-o /shared/hang/{host}; {host} is replaced by the host's name. Then join the bundles:
  grpo-doctor attach --replay /shared/hang/*

exit codes: 0 healthy or slow; 3 stuck or dead; 2 wrong usage, several jobs, no readable bundle or
dump, or dumps that show nothing; 4 no permission (the message has the fix), or a result can't be
written; 5 no job; 130 interrupted before the verdict, or before it was saved.
"""
_EXIT_CODES = {"healthy": 0, "slow": 0, "stuck": 3, "dead": 3}
_UNTOUCHED = "interrupted; the job was not touched."
_LOOKED = "interrupted; the job was not modified."
_SECONDS = (0.2, 60.0)
_CLUSTERS = ("slurm", "kube", "ray", "ssh")
_OTHER_ARCHIVES = (".zip", ".tar", ".gz", ".bz2", ".xz", ".zst", ".7z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("pids", metavar="PID", type=int, nargs="*", help="a process of the job")
    parser.add_argument(
        "--dumps", type=given_path, metavar="DIR", help="judge flight-recorder files alone"
    )
    parser.add_argument(
        "--replay",
        type=given_path,
        metavar="BUNDLE",
        nargs="+",
        help="explain saved bundles: of one host, of all hosts of a job, or a folder of bundles",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=given_path,
        metavar="DIR",
        help="save everything there; .tar.gz or .tgz: one file; -: standard output; {host}: host "
        "name",
    )
    parser.add_argument(
        "--html", type=given_path, metavar="FILE", help="write the verdict as a page"
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON (schema 1)")
    _add_clusters(parser)
    parser.add_argument("--no-stop", action="store_true", help="never pause a thread, even to read")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.2,
        metavar="S",
        help="seconds between the samples (default: 1.2)",
    )
    parser.set_defaults(interrupted=_UNTOUCHED)


def _add_clusters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a job on several hosts")
    group.add_argument("--slurm", metavar="JOBID", help="inspect all nodes of this Slurm job")
    group.add_argument(
        "--kube", metavar="SELECTOR[/NAMESPACE]", help="inspect all pods with these labels"
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        nargs="?",
        const="auto",
        help="inspect all nodes of this Ray cluster",
    )
    group.add_argument(
        "--ssh",
        metavar="HOSTS",
        help="inspect these hosts (node1,node2 or node[1-8]), or those of a hostfile",
    )
    group.add_argument(
        "--remote", metavar="COMMAND", help="how grpo-doctor is started on the other hosts"
    )
    group.add_argument(
        "--host-timeout", type=float, default=60.0, metavar="S", help="for the first answer (60)"
    )
    parser.add_argument("--start-at", type=float, metavar="UNIX_S", help=argparse.SUPPRESS)


def execute(options: argparse.Namespace) -> int:
    """Inspect the job, print the verdict, and return the exit code of the job's state."""
    _check(options)
    view = _view(options)
    options.interrupted = _LOOKED
    from grpo_doctor.hang.diagnose import diagnose_view  # noqa: PLC0415 - after usage errors
    from grpo_doctor.hang.multihost.join import with_hosts  # noqa: PLC0415

    evidence = view.evidence
    to_stdout = options.output == Path(STDOUT)
    if to_stdout:
        from grpo_doctor.hang.collection.bundle import packed  # noqa: PLC0415

        write_binary(packed(evidence))
    diagnosis = with_hosts(diagnose_view(view), evidence.job)
    if not options.json and not to_stdout:
        import msgspec  # noqa: PLC0415

        from grpo_doctor.cli.rendering import verdict_text  # noqa: PLC0415

        text = verdict_text(msgspec.to_builtins(diagnosis), sys.stdout)
        write_bytes(text.encode("utf-8", "replace"), STDOUT)
    if options.json:
        from grpo_doctor.hang.verdict import encoded_document  # noqa: PLC0415

        write_bytes(encoded_document(diagnosis), STDOUT)
    _keep(options, evidence, diagnosis)
    if _would_be_lost(options, diagnosis):
        say("to save this evidence, run the same command with -o DIR before you end the job")
    _tell_of_others(evidence, diagnosis)
    return _exit_code(options, evidence, diagnosis)


def _exit_code(options: argparse.Namespace, evidence: Evidence, diagnosis: Diagnosis) -> int:
    """Return the exit code of the state or, where nothing could be judged, of what is missing."""
    verdict = diagnosis.verdict
    if (verdict.state, verdict.cause) == ("slow", "unknown"):
        if options.dumps:
            return UsageError.exit_code
        stacks = [stack for look in evidence.stacks for stack in look]
        if stacks and all(stack.problem and not stack.threads for stack in stacks):
            return PermissionNeededError.exit_code
    return _EXIT_CODES[verdict.state]


def _check(options: argparse.Namespace) -> None:
    # A PID may stand where --replay takes bundles.
    names = [path for path in options.replay or () if not path.exists()]
    pids = options.pids or [path for path in names if str(path).isdecimal()]
    clusters = [getattr(options, name) for name in _CLUSTERS]
    if sum(map(bool, (pids, options.dumps, options.replay, *clusters))) > 1:
        raise UsageError(
            "PID, --dumps, --replay, --slurm, --kube, --ray and --ssh are mutually exclusive; "
            "give one."
        )
    for pid in options.pids:
        if pid < 1:
            raise UsageError(f"{pid} is not a PID.")
    if options.json and options.output == Path(STDOUT):
        raise UsageError("--json and -o - both write to standard output; give one.")
    if options.output and _is_other_archive(options.output):
        raise UsageError(
            f"-o {options.output}: a bundle is a folder, or one file called .tar.gz or .tgz."
        )
    low, high = _SECONDS
    if not low <= options.seconds <= high:
        raise UsageError(f"--seconds {options.seconds:g}: give {low:g} to {high:g} seconds.")


def _is_other_archive(out: Path) -> bool:
    """Return whether the path names an archive type that bundles do not have."""
    ours = out.name.endswith((".tar.gz", ".tgz"))
    return out.suffix.lower() in _OTHER_ARCHIVES and not ours and not out.is_dir()


def _view(options: argparse.Namespace) -> JobView:
    if options.dumps:
        from grpo_doctor.cli.attach_evidence import dumped  # noqa: PLC0415

        return dumped(options.dumps)
    evidence = _evidence(options)
    options.interrupted = _LOOKED
    from grpo_doctor.hang.model import view  # noqa: PLC0415

    return view.build(evidence)


def _evidence(options: argparse.Namespace) -> Evidence:
    if options.replay:
        from grpo_doctor.cli.attach_evidence import replayed  # noqa: PLC0415

        return replayed(options.replay)
    if clusters := [name for name in _CLUSTERS if getattr(options, name)]:
        return _of_cluster(options, clusters[0])
    from grpo_doctor.cli.attach_evidence import visit, wait_for  # noqa: PLC0415

    wait_for(options.start_at)
    return visit(options.pids, stop=not options.no_stop, seconds_between=options.seconds)


def _of_cluster(options: argparse.Namespace, kind: str) -> Evidence:
    from grpo_doctor.cli import hosts  # noqa: PLC0415

    def look(program: Sequence[str], count: int) -> list[str]:
        return hosts.look_command(program, options.seconds, stop=not options.no_stop, hosts=count)

    where, remote = getattr(options, kind), options.remote
    if kind == "slurm":
        found = hosts.slurm(where, remote, look)
    elif kind == "kube":
        found = hosts.kubernetes(where, remote, look)
    elif kind == "ssh":
        found = hosts.ssh(where, remote, look)
    else:
        from grpo_doctor.cli.ray_hosts import ray_cluster  # noqa: PLC0415

        found = ray_cluster(where, remote, look)
    return hosts.gathered(found, options.host_timeout)


def _keep(options: argparse.Namespace, evidence: Evidence, diagnosis: Diagnosis) -> None:
    """Writes what was asked for."""
    if options.output == Path(STDOUT):  # written already
        options.output = None
    if options.output or options.html:
        import msgspec  # noqa: PLC0415

        from grpo_doctor.cli.rendering import verdict_page  # noqa: PLC0415
        from grpo_doctor.hang.collection.bundle import with_host  # noqa: PLC0415

        page = verdict_page(msgspec.to_builtins(diagnosis))
        if options.html:
            html = with_host(options.html, evidence.job)
            write_bytes(page, str(html))
            inform(f"wrote {html}")
        if options.output:
            from grpo_doctor.hang.collection import bundle  # noqa: PLC0415

            out = with_host(options.output, evidence.job)
            inform(f"wrote {bundle.write(out, evidence, diagnosis, page)}")


def _would_be_lost(options: argparse.Namespace, diagnosis: Diagnosis) -> bool:
    """Return whether the evidence of a live hang is saved nowhere."""
    is_kept = options.output or options.html or options.json or options.replay or options.dumps
    return not is_kept and bool(_EXIT_CODES[diagnosis.verdict.state])


def _tell_of_others(evidence: Evidence, diagnosis: Diagnosis) -> None:
    """Print how to inspect all hosts, if the verdict does not."""
    from grpo_doctor.hang.model.hosts import command, unseen  # noqa: PLC0415
    from grpo_doctor.hang.wording import ranks_text  # noqa: PLC0415

    ranks = unseen(evidence.job)
    look = command(evidence.job)
    if ranks and _EXIT_CODES[diagnosis.verdict.state] and look not in diagnosis.verdict.confirm:
        say(f"{ranks_text(ranks)} on other hosts were not inspected. To inspect all hosts at once:")
        say(f"  {look}")
