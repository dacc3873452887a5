#!/usr/bin/env python3
"""Takes lines out that are locks, one at a time, and shows that a test fails for each.

    tests/mutations/mutate.py              all of them, in build/release
    tests/mutations/mutate.py landlock …   these
    tests/mutations/mutate.py --dry-run    only whether each still applies: a test of ctest's, too

Each lock is removed in the working tree, the one program that tests it is built, its tests run, and the file is put
back, also when that is interrupted. First they run with the lock in place: where they do not pass, or skip themselves,
they prove nothing. As root: some locks are between users.

Status 1 if a lock can go without a test failing, if one has no test that passes with it, or if one is not to be found
any more: then the table below is to be brought up to date, not the lock to be forgotten.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMORY = 8 << 30  # of a test: without a lock it may take all there is
SECONDS = 600


@dataclasses.dataclass
class Lock:
    """`text`, which is in the file once, becomes `without`; then one of `tests` of `program` has to fail."""

    name: str
    file: str
    text: str
    without: str
    program: str
    tests: str  # --gtest_filter


LOCKS = [
    # What a child of the daemon may do.
    Lock("landlock", "backends/sandbox/sandbox.cc", "return Describe(child, DenyFiles());", "return Describe(child, Result<int>(1));",
         "backends_tests", "Sandbox.NoFileOpens"),
    Lock("builder's filter", "backends/sandbox/sandbox.cc", "HONE_TRY(Install(BuilderFilter()));", "BuilderFilter();",
         "backends_tests", "Sandbox.*:RealBuilder.IsLockedIn"),
    Lock("runner's filter", "backends/sandbox/sandbox.cc", "{ return Install(RunnerFilter()); }",
         "{ return RunnerFilter(), Result<void>(); }",
         "backends_tests", "Sandbox.*:RunnerPool.RunnersAndLaunchersSayWhatHoldsThem"),
    Lock("launcher's filter", "backends/sandbox/sandbox.cc", "HONE_TRY(Install(LauncherFilter()));", "LauncherFilter();",
         "backends_tests", "Sandbox.*:RunnerPool.RunnersAndLaunchersSayWhatHoldsThem"),
    Lock("no executable memory", "backends/sandbox/sandbox.cc", "filter.AddIf(Action::kAllow, SYS_mmap, 2, PROT_EXEC, 0);",
         "filter.Add(Action::kAllow, {SYS_mmap});", "backends_tests", "Sandbox.*"),
    # What a candidate may do.
    Lock("candidate's filter", "backends/cpu/candidate.cc",
         'if (!CandidateFilter().Install(true)) FailSetup("seccomp", std::strerror(errno));', "CandidateFilter();",
         "backends_tests", "RunnerTest.KillsAtSystemCalls"),
    Lock("filter of its helper threads", "backends/cpu/candidate.cc", "CandidateFilter().Install(true)",
         "CandidateFilter().Install(false)", "backends_tests", "RunnerTest.KillsSystemCallsOnHelperThreadsToo"),
    Lock("candidate's descriptors", "backends/cpu/candidate.cc", "  ::close_range(0, ~0u, 0);\n", "",
         "backends_tests", "RunnerPool.RunnerLauncherAndCandidateDieWithTheDaemon"),
    Lock("candidate's clock", "backends/cpu/fork_server.cc", "if (left.count() > 0) continue;", "continue;",
         "backends_tests", "RunnerTest.EndsEndlessLoops"),
    # What code may be loaded.
    Lock("relocations of the dynamic segment", "base/elf_check.cc",
         'return Refuse("a relocation of the dynamic segment");', "continue;",
         "base_tests", "CheckArtifact.RefusesRelocationsOfTheDynamicSegment"),
    Lock("code is looked at", "base/elf_check.cc", "return CheckCode(machine_->elf, code, entries_);", "return {};",
         "base_tests", "CheckArtifact.RefusesInstructionsThatLeadOutOfTheProcess"),
    Lock("indirect branches", "base/code_check.cc",
         "if (instruction.is_indirect && instruction.called != kParallelFor)",
         "if (instruction.is_indirect && instruction.called == kParallelFor - 1)",
         "base_tests", "CheckArtifact.*:CheckCode.*:*Code*"),
    Lock("branches into instructions", "base/code_check.cc", "if (!Meets(jump.to, false))",
         "if (!Meets(jump.from, true))", "base_tests", "CheckArtifact.*:CheckCode.*:*Code*"),
    Lock("writable code", "base/elf_check.cc", 'return Refuse("a segment that is writable and executable");',
         "return {};", "base_tests", "CheckArtifact.RefusesWritableCode"),
    Lock("digest of code", "base/elf_check.cc", "if (expectations.digest != AsText(std::as_bytes(std::span(digest))))",
         "if (digest == Digest256{})", "base_tests", "CheckArtifact.ComparesSizeAndDigest"),
    # What children say.
    Lock("descriptors of a frame", "backends/processes/child_channel.cc",
         "if ((message.msg_flags & MSG_CTRUNC) != 0 || fds->size() > most_fds)",
         "if (fds->size() > 1'000'000 + most_fds)",
         "backends_tests", "FakeBuilder.TooManyDescriptorsEndTheChild:ChildChannel.*"),
    Lock("stop hits its own request alone", "backends/processes/child_pool.cc",
         "PastPauses(deadline, stop));\n  if (stop.stop_requested()) return GiveUp();\n  if (frame",
         "PastPauses(deadline, stop));\n  if (!frame && stop.stop_requested()) return GiveUp();\n  if (frame",
         "backends_tests", "BuilderStop.NeverHitsTheNextRequest"),
    Lock("what is prepared in vain", "backends/processes/runner_pool.cc", "if (!answered) child.Abandon(prepare_id);", "",
         "backends_tests", "RunnerPool.WhatIsPreparedInVainKeepsNobodyWaiting"),
    Lock("shares of memory", "backends/runner/guarded_arena.cc", "if (wanted > available / 4 * 3)", "if (wanted / 100 > available)",
         "backends_tests", "Arena.SharesAreOfWhatAllLeave"),
    # What devices on other machines say.
    Lock("version of a device", "backends/processes/remote_messages.cc", "if (version != kRemoteVersion)", "if (version == 0)",
         "backends_tests", "RemoteRunner.ItsFirstWords*"),
    Lock("times that cannot be", "backends/processes/remote_messages.cc",
         "if (flops > timing.median_us * kMostFlopsPerUs * std::max(asked.workers, 1))", "if (flops < 0)",
         "backends_tests", "RemoteRunner.TimesThatCannotBeAreNotBelieved"),
    Lock("verdicts that cannot be", "backends/processes/remote_messages.cc", "if (asked.full && !report.full)", "if (false)",
         "backends_tests", "RemoteRunner.VerdictsThatCannotBeAreNotBelieved"),
    Lock("a device that is silent", "backends/processes/remote_runner.cc",
         "std::min(end, steady_clock::now() + limits_.silence)", "end",
         "backends_tests", "RemoteRunner.OneThatHangsIsGivenUpAndOneThatWorksIsNot"),
    Lock("a device's descriptors", "backends/processes/remote_runner.cc", "if (!frame->fds.empty()) return GiveUp(", "if (false) return GiveUp(",
         "backends_tests", "RemoteRunner.OneThatHangsUpOrSendsGarbageIsGivenUp"),
    Lock("a device's words", "backends/processes/remote_runner.cc", "error = Printable(std::move(error));", "",
         "backends_tests", "RemoteRunner.WhatItSaysIsOneLineAndNotLong"),
    Lock("a device's verdict checked here", "backends/processes/remote_pools.cc",
         "if (!here_too || !options_.runs_here || report.failure) return report;", "return report;",
         "backends_tests", "RemotePools.WhatRunsHereIsCheckedHereAsWellBeforeItIsKept"),
    Lock("what talks with other machines", "backends/sandbox/sandbox.cc", 'Describe("stdio", DenyWritingFiles({"/dev/null"}))',
         'Describe("stdio", Result<int>(1))', "backends_tests", "Sandbox.WhatTalksWithAnotherMachineHasNoNetworkAndWritesNoFiles"),
    Lock("who may name a device", "daemon/serve/attached_devices.cc",
         "if (found == lent_.end() || (found->second.client.uid != client.uid && client.uid != 0)) return nullptr;",
         "if (found == lent_.end()) return nullptr;", "daemon_tests", "AttachedDevices.OnlyItsOwnUser*"),
    Lock("who may ask what", "daemon/router.cc", "if (!route.others.empty() && !asked.IsOwner())",
         "if (!route.others.empty() && asked.peer == nullptr)", "daemon_tests", "Users.MayAskWhatTheTableSays"),
    Lock("who may lend a device", "daemon/routes.h", 'IN_LOOP(Attach, "lend it devices")', "IN_LOOP(Attach, kMay)",
         "daemon_tests", "AttachedDevices.OnlyItsOwnUser*"),
    Lock("a builder's user", "backends/processes/child_pool.cc", "(found->born < born_after || is_anothers)",
         "(found->born < born_after || (is_anothers && false))", "backends_tests", "FakeBuilder.BuildsForOneUserAlone"),
    Lock("whom a miss is built for", "daemon/serve/request_path.cc", "schedule, identity.target, options.user}",
         "schedule, identity.target}", "daemon_tests", "Serving.CompilesForWhoAsked"),
    Lock("what others see of records", "daemon/route_table.h", "if (!asked.IsOwner()) return",
         "if (asked.peer == nullptr) return", "daemon_tests", "Users.OthersSeeTheCanonicalTextAlone"),
    Lock("what others see of records in lists", "daemon/inspect/admin_records.cc",
         "walk.for_others ? RowForOthers(record) : RowOf(record, *use)", "RowOf(record, *use)", "daemon_tests",
         "Users.OthersSeeTheCanonicalTextAlone"),
    Lock("a kernel's name in replies to others", "daemon/serve/lookup_path.cc", "code->reply.class_name = identity.label;",
         "", "daemon_tests", "Users.OthersSeeTheCanonicalTextAlone"),
    Lock("a device that says it is this machine", "daemon/serve/attached_devices.cc",
         "if (devices_.Find(device->target_text) != nullptr)", "if (device->target_text.empty())",
         "daemon_tests", "AttachedDevices.TheMachineItself*"),
    # Whom is believed.
    Lock("daemon's user", "client/protocol/channel.cc", "if (!IsTrustedUid(peer.uid)) {",
         "if (!IsTrustedUid(peer.uid) && peer.pid == 0) {", "client_tests", "ChannelTest.AnotherUsersDaemonIsNot"),
    Lock("socket's directory", "client/protocol/channel.cc", "if (status.st_mode & 022) {", "if (status.st_mode & 0) {",
         "client_tests", "ChannelTest.ASocketWhereOthersMayWriteIsNot"),
    Lock("owner of a directory", "base/file.cc",
         "if (!IsOurs(info, path, last ? owner : Owner::kSelfOrRoot)) return NotOurs(info);", "(void)owner;",
         "base_tests", "PrivateDirectory.*"),
    Lock("nobody's directories", "base/file.cc", "RootIsNobody(info.st_uid) && IsRootsPlace(path)",
         "RootIsNobody(info.st_uid) && (IsRootsPlace(path) || true)",
         "base_tests", "PrivateDirectory.OfRoot*"),
    Lock("other addresses than the loopback's", "daemon/metrics_port.cc", "!address.is_loopback() || ", "",
         "daemon_tests", "ParseLoopbackPort.*"),
    Lock("links to directories", "base/file.cc",
         "int flags = (last ? O_RDONLY : O_PATH) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;",
         "int flags = (last ? O_RDONLY : O_PATH) | O_DIRECTORY | O_CLOEXEC;", "base_tests", "PrivateDirectory.*"),
    Lock("links to files", "base/file.cc", "flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600",
         "flags | O_CLOEXEC | O_NONBLOCK, 0600", "client_tests", "DiskCacheTest.LinksAreNotFollowed"),
    Lock("links in a cache", "cache/trust.cc", "if (S_ISLNK(info.st_mode)) return refuse(", "if (false) return refuse(",
         "cache_tests", "Trust.*"),
    Lock("model's mark", "cache/trial_log.cc", "if (mark != MarkOfModel(name, sealed, key))", "if (false)",
         "cache_tests", "MarkTest.*"),
    Lock("what a search began from", "cache/admission.cc",
         "if (there == nullptr || there->created != state->created)",
         "if (there == nullptr) return {};\n    if (there->created != state->created)",
         "cache_tests", "ScheduleCacheTest.WhatReplaces*"),
    Lock("what a compilation began from", "daemon/serve/lookup_path.cc", "entry.admits = IfStill(found.there);", "",
         "daemon_tests", "Serving.WhatIs*"),
    Lock("what was abandoned has cost", "daemon/serve/fair_queue.cc", "Charge(running, Clock::now());", "",
         "daemon_tests", "FairQueue.WhatIsAbandonedHas*"),
    Lock("keys that nobody can vouch for", "cache/schedule_cache.cc",
         "return distrusted == nullptr || distrusted->contains(*record.source->key);",
         "return distrusted != nullptr && distrusted->contains(*record.source->key);", "cache_tests", "MarkTest.*"),
    Lock("mark of checked code", "cache/schedule_cache.cc", "return record.artifact_digest && IsMarkedBy(record, key_) && !IsDistrusted(record);",
         "return record.artifact_digest.has_value();", "cache_tests", "MarkTest.*"),
    Lock("mark of a program's copies", "client/api/disk_cache.cc",
         'return Mac256(key, "copy " + std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));',
         "return digest;", "client_tests", "DiskCacheTest.WhatSomebodyShipped*"),
    Lock("keys that are no longer trusted", "cache/schedule_cache.cc",
         "return distrusted == nullptr || distrusted->contains(*record.source->key);", "return false;",
         "cache_tests", "MarkTest.CodeOfAKey*"),
    # What stays.
    Lock("sync of what was acknowledged", "cache/rocks_store.cc", "options.sync = sync == SyncMode::kSync;",
         "options.sync = sync == SyncMode::kSync && batch.operations().empty();", "cache_tests", "Acknowledged.*"),
    Lock("checksums of the log", "cache/log_file.cc",
         "if (Mask(Crc32c(covered)) != MaskedAt(at)) return std::nullopt;\n    return Fragment{",
         "return Fragment{", "cache_tests", "LogFile.*"),
    Lock("bits of the log set right", "cache/log_file.cc", "if (!fragment) fragment = Mended(at);", "",
         "cache_tests", "LogFile.*"),
    Lock("bound of pins", "cache/pins.cc", "if (pinned + more <= limit) return {};",
         "if (pinned + more <= limit * 1000) return {};", "cache_tests", "EvictionTest.*Pinned*"),
    # What a text may cost.
    Lock("nodes of a kernel", "ir/language/parse_resolve.cc", "if (nodes_ > limits_.nodes)", "if (nodes_ > limits_.nodes * 50)",
         "ir_tests", "HostileTexts.*:Parse.*"),
    Lock("height of an expression", "ir/language/parse_values.cc",
         "if (expr.height() > limits_.height) return TooHigh(limits_);", "", "ir_tests", "HostileTexts.*:Parse.*"),
    Lock("length of a target", "ir/target.cc", "if (text.size() > kMaxText)", "if (text.size() > kMaxText * 1000)",
         "ir_tests", "HostileTexts.*"),
    Lock("growth by inlining", "ir/rewrites/inline_stage.cc", "if (nodes > kLimits.nodes || body", "if (body",
         "ir_tests", "Inline.EndsWhereAChainWouldDoubleWithoutEnd"),
    Lock("height by inlining", "ir/rewrites/inline_stage.cc",
         "if (nodes > kLimits.nodes || body.height() + producer.body.height() > kLimits.height)",
         "if (nodes > kLimits.nodes)", "ir_tests", "Inline.EndsWhereABodyWouldBecomeTooHigh"),
    # What lies in the place of an output's elements.
    Lock("a trip's own places", "codegen/lower/lower_in_output.cc", "before.constant() + wanted > written[d].extent", "false",
         "codegen_tests", "InOutput.*"),
    Lock("lanes beyond a trip's places", "codegen/lower/lower.cc", "IsInOutput(stage) || (tail", "(tail",
         "codegen_tests", "InOutput.*"),
    Lock("who reads after the output", "ir/schedule/check_in_output.cc",
         "if (!at || scheduled.stages[at].attach_loop != loop)", "if (!at || loop.empty())", "ir_tests", "Store.*"),
    # Which element of a matrix a thread of a warp has, and what may be multiplied so.
    Lock("rows of a word", "codegen/gpu/straighten_warp.cc", "Linear(word % halves * kHalf)", "Linear(word / halves * kHalf)",
         "codegen_tests", "Warp.*:WarpRules.*"),
    Lock("rows that a warp names", "codegen/gpu/straighten_warp.cc", "has_halves ? LaneDigit(kHalf, kHalves) * kHalf : Linear()",
         "has_halves ? LaneDigit(kHalf * kHalves, kHalves) * kHalf : Linear()", "codegen_tests", "Warp.*:WarpRules.*"),
    Lock("factors that are rounded", "codegen/instructions.cc", "if (kernel.options.accuracy < instruction.accuracy)", "if (false)",
         "codegen_tests", "Warp.*:Instructions.*"),
    Lock("bytes without a sign", "codegen/gpu/dialect.cc", '{DType::kU8,\n     "uchar",\n     "uchar",',
         '{DType::kU8,\n     "char",\n     "char",',
         "backends_tests", "*GpuDevice.IntegersAreWhatTheKernelLanguageSays/opencl"),
    Lock("registers that changed since", "codegen/gpu/pack_lanes.cc", "changed->second > computed_.at(since)", "false", "codegen_tests",
         "PackLanes.*"),
    Lock("memory that changed since", "codegen/gpu/pack_lanes.cc", "written->second > computed_.at(element->load)", "false",
         "codegen_tests", "PackLanes.*"),
    Lock("what comes before assignments", "codegen/gpu/pack_lanes.cc", "lane->row == row && values[lane->lane])", "false)",
         "codegen_tests", "PackLanes.*"),
    # Where threads wait for each other.
    Lock("a loop's next trip", "codegen/lower/place_barriers.cc", "if (!Repeats(stmt)) return;", "if (!Repeats(stmt) || true) return;",
         "codegen_tests", "SimtRun.*:GpuRules.DefaultSchedules*"),
    Lock("elements of another thread", "codegen/lower/place_barriers.cc", "return !AreOneThread(a, b);", "return !AreOneThread(a, b) && false;",
         "codegen_tests", "SimtRun.*:GpuRules.DefaultSchedules*"),
    Lock("weights for devices without bytes", "network/run/lower_served.cc", "&& !std::exchange(has_widened, true)",
         "&& std::exchange(has_widened, true)", "network_tests", "NarrowWeights.*"),
]


class Removed:
    """The working tree without one lock; the file is put back at the end, whatever happens."""

    def __init__(self, lock):
        self.path = ROOT / lock.file
        self.lock = lock

    def __enter__(self):
        self.before = self.path.read_text()
        self.path.write_text(self.before.replace(self.lock.text, self.lock.without))

    def __exit__(self, *_):
        self.path.write_text(self.before)


def applies(lock):
    path = ROOT / lock.file
    return path.is_file() and path.read_text().count(lock.text) == 1 and lock.text != lock.without


def build(folder, program):
    return subprocess.run(["cmake", "--build", folder, "--target", program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(folder, lock):
    """(whether all passed, how many did)"""
    command = [folder / "bin" / lock.program, f"--gtest_filter={lock.tests}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          preexec_fn=limit_memory, start_new_session=True) as test:
        try:
            out, _ = test.communicate(timeout=SECONDS)
        except BaseException as stopped:
            os.killpg(test.pid, signal.SIGKILL)
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            return False, 0
    passed = re.search(r"^\[  PASSED  \] (\d+) test", out, re.MULTILINE)
    skipped = re.search(r"^\[  SKIPPED \] (\d+) test", out, re.MULTILINE)
    count = (int(passed[1]) if passed else 0) - (int(skipped[1]) if skipped else 0)
    return test.returncode == 0, count


def try_lock(folder, lock):
    """What came of it: "a test fails" is what is wanted."""
    if not applies(lock):
        return "the line is not there any more"
    if build(folder, lock.program).returncode != 0:
        return "does not build with the lock"
    good, count = run(folder, lock)
    if not good or count == 0:
        return "no test passes with the lock"
    with Removed(lock):
        built = build(folder, lock.program)
        if built.returncode != 0:
            print(built.stdout[-3000:], file=sys.stderr)
            return "does not build without the lock"
        good, _ = run(folder, lock)
    return "NO TEST FAILS" if good else "a test fails"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="locks, or words of their names; all of them if there is none")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="the build's folder")
    parser.add_argument("--dry-run", action="store_true", help="only see whether each applies")
    options = parser.parse_args()
    locks = [lock for lock in LOCKS if not options.names or any(name in lock.name for name in options.names)]
    if not locks:
        parser.error("no lock has such a name")
    if options.dry_run:
        gone = [lock for lock in locks if not applies(lock)]
        for lock in gone:
            print(f"{lock.name}: the line is not in {lock.file} any more, or more than once")
        print(f"{len(locks) - len(gone)} of {len(locks)} locks can be taken out")
        return 1 if gone else 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception: what was removed is put back
    bad, programs = 0, set()
    try:
        for lock in locks:
            start = time.monotonic()
            programs.add(lock.program)
            outcome = try_lock(options.build, lock)
            bad += outcome != "a test fails"
            seconds = time.monotonic() - start
            print(f"{lock.name:36} {lock.file:28} {outcome:32} {seconds:5.0f} s  {lock.tests}", flush=True)
    finally:
        for program in sorted(programs):  # nothing that was built without a lock stays
            build(options.build, program)
    print(f"{len(locks) - bad} of {len(locks)} locks are held by a test")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
