/**
 * The compiled binary where things are missing or forbidden: file systems that cannot be written, descriptors, memory, system calls. A
 * chain is attached, checked and detached as elsewhere, or there is one error that says why not, and nothing is left.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { ENOSYS, EPERM } from "../ffi/sys/errno.ts";
import { addDefaultRoute, newNamespaces, runInNetns } from "../testing/netns.ts";
import { type FinishedProcess, testWith } from "../testing/binary.ts";
import {
  MINIMAL_ROOT_ADDRESSES,
  MINIMAL_ROOT_CAP_ARGS,
  MINIMAL_ROOT_PROGRAMS,
  type MinimalRoot,
  newMinimalRoot,
} from "../testing/minimal_root.ts";
import { WRITE_XOR_EXECUTE, WRITE_XOR_EXECUTE_NEEDS } from "../testing/write_xor_execute.ts";

const PROGRAMS = [...MINIMAL_ROOT_PROGRAMS, "nft", "ip", "perl"];

let thin: MinimalRoot;
beforeAll(() => {
  thin = newMinimalRoot();
});
afterAll(() => thin[Symbol.dispose]());

/** What is done to the surroundings before the binary is started in the root: a script, and a command in front. */
interface Thinness {
  /** Mounts and the like; `$root` is the root. */
  readonly mounts?: string;
  /** Runs the words behind it. */
  readonly wrapper?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

interface Host {
  readonly host: Netns;
  readonly container: Netns;
  /** State files, which outlast the mounts of one call. */
  readonly state: string;
  run(thinness: Thinness, ...args: string[]): FinishedProcess;
  /** `cni run VERB` of the network. */
  call(thinness: Thinness, verb: string): FinishedProcess;
  /** Links, rules and files of the attachment. */
  left(): readonly string[];
}

function hostTest(name: string, body: (host: Host) => void, needs: readonly string[] = []): void {
  testWith([...PROGRAMS, ...needs], name, () => {
    using namespaces = newNamespaces();
    addDefaultRoute(namespaces.host);
    const { host, container } = namespaces;
    const state = mkdtempSync(join(tmpdir(), "cni-thin-state-"));
    using _ = { [Symbol.dispose]: () => rmSync(state, { recursive: true, force: true }) };
    mkdirSync(join(state, "run"));
    const run = ({ mounts = "", wrapper = [], env = {} }: Thinness, ...args: string[]) =>
      thin.run(host, "cni", args, {
        wrapper,
        env: { CAP_ARGS: MINIMAL_ROOT_CAP_ARGS, ...env },
        mounts: `mount -t tmpfs none "$root/dev"; mknod -m 666 "$root/dev/null" c 1 3
          mount --bind "${state}" "$root/var/lib/cni"; mount --bind "${state}/run" "$root/run"
          ${mounts}`,
      });
    body({
      ...{ host, container, state, run },
      call: (thinness, verb) => run(thinness, "run", verb, "thin", container.path, "--container-id", "thin1", "--json"),
      left: () => [
        ...JSON.parse(runInNetns(host, "ip", "-j", "link", "show", "type", "veth")).map((
          { ifname }: { ifname: string },
        ) => ifname),
        ...runInNetns(host, "nft", "list", "ruleset").match(/.*(thin1|10\.77\.0\.2).*/g) ?? [],
        ...(readdirSync(state, { recursive: true }) as string[]).filter((path) =>
          /thin1|10\.77\.0\.\d|fd00:77::/.test(path)
        ),
      ],
    });
  });
}

/** Attaches, checks and detaches: everything works, and nothing is said or left. */
function expectWorking({ call, left }: Host, thinness: Thinness): void {
  const added = call(thinness, "add");
  expect(added).toMatchObject({ exitCode: 0, stderr: "" });
  expect(JSON.parse(added.stdout).ips.map(({ address }: { address: string }) => address)).toEqual(
    MINIMAL_ROOT_ADDRESSES,
  );
  expect(left().length).toBeGreaterThan(5);
  expectQuiet(["check", "del"].map((verb) => call(thinness, verb)));
  expect(left()).toEqual([]);
}

function expectQuiet(finished: readonly FinishedProcess[]): void {
  for (const { exitCode, stdout, stderr } of finished) {
    expect([exitCode, stderr, JSON.parse(stdout).warnings]).toEqual([0, "", []]);
  }
}

/** As {@linkcode expectWorking}, though ADD tells in one line what it does without. */
function expectGoingOn({ call, left }: Host, thinness: Thinness, told: RegExp): void {
  const added = call(thinness, "add");
  expect([added.exitCode, added.stderr]).toEqual([0, expect.stringMatching(told)]);
  expectQuiet(["check", "del"].map((verb) => call(thinness, verb)));
  expect(left()).toEqual([]);
}

/** ADD fails with an error that says this, leaves nothing, and DEL succeeds. */
function expectRefused({ call, left }: Host, thinness: Thinness, ...texts: readonly (string | RegExp)[]): void {
  const { exitCode, stdout } = call(thinness, "add");
  const error = JSON.parse(stdout);
  expect([exitCode, error]).toEqual([1, {
    cniVersion: "1.1.0",
    code: expect.any(Number),
    msg: expect.any(String),
    details: error.details,
  }]);
  for (const text of texts) expect(`${error.msg}; ${error.details}`).toMatch(text);
  expect(left()).toEqual([]);
  expect(call(thinness, "del").exitCode).toBe(0);
}

const READ_ONLY_ROOT = 'mount -o remount,ro,bind "$root"';
const READ_ONLY_STATE = `mount -o remount,ro,bind "$root/var/lib/cni"; ${READ_ONLY_ROOT}`;
const READ_ONLY_SYSCTLS = 'mount --bind "$root/proc/sys" "$root/proc/sys"; mount -o remount,ro,bind "$root/proc/sys"';

describe("a root that cannot be written", () => {
  hostTest("is enough where the state can be; no HOME, no /tmp, no shell", (host) => {
    expect(existsSync(join(thin.root, "tmp"))).toBe(false);
    expectWorking(host, { mounts: READ_ONLY_ROOT });
  });

  hostTest("without a place for the state, ADD says which one, and DEL goes on", (host) => {
    expectRefused(host, { mounts: READ_ONLY_STATE }, /read-only file system/i, "/var/lib/cni");
  });

  hostTest("DEL of what was attached before says what it cannot remove", (host) => {
    expect(host.call({}, "add").exitCode).toBe(0);
    const { exitCode, stdout } = host.call({ mounts: READ_ONLY_STATE }, "del");
    expect([exitCode, JSON.parse(stdout).msg]).toEqual([1, expect.stringMatching(/Read-only file system/)]);
    expectQuiet([host.call({}, "del")]);
    expect(host.left()).toEqual([]);
  });
});

describe("a file system for the state that has no room for another file", () => {
  const fullOf = (...files: string[]) =>
    [`mount -t tmpfs -o nr_inodes=${files.length + 1} none "$root/var/lib/cni"`]
      .concat(files.map((name) => `: >"$root/var/lib/cni/${name}"`)).join("\n");

  hostTest("makes ADD fail, and no DEL where nothing was attached yet", (host) => {
    expectRefused(host, { mounts: fullOf() }, /no space left/i, "/var/lib/cni");
  });

  hostTest("makes ADD fail, and no DEL of a container that has no lock yet", (host) => {
    expectRefused(host, { mounts: fullOf(".turn.lock", ".gc.lock") }, /no space left/i, "/var/lib/cni");
  });
});

describe("kernel parameters that cannot be written", () => {
  hostTest("are no obstacle where they are right", (host) => {
    // What the first ADD sets on the host stays; the container's are right from the start, but for the one that is asked for.
    expectWorking(host, {});
    runInNetns(host.container, "sh", "-c", "echo 500 >/proc/sys/net/core/somaxconn");
    // What every new interface is given, and would be as well without, only later.
    const told = /^bridge: Cannot set (net\/ipv6\/conf\/eth0\/\w+ to [01](, )?){3}, continuing without: .*\(EROFS\)\n$/;
    expectGoingOn(host, { mounts: READ_ONLY_SYSCTLS }, told);
  });

  hostTest("that are wrong on the host are named with the value that they should have", (host) => {
    runInNetns(host.container, "sh", "-c", "echo 500 >/proc/sys/net/core/somaxconn");
    runInNetns(host.host, "sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward");
    expectRefused(host, { mounts: READ_ONLY_SYSCTLS }, "net/ipv4/ip_forward", '"1"', /read-only/i);
  });

  hostTest("that are wrong in the container are named with both values", (host) => {
    expectWorking(host, {});
    runInNetns(host.container, "sh", "-c", "echo 4096 >/proc/sys/net/core/somaxconn");
    expectRefused(host, { mounts: READ_ONLY_SYSCTLS }, "net.core.somaxconn", '"500"', '"4096"', /read-only/i);
  });
});

describe("few descriptors", () => {
  hostTest("16 are enough", (host) => {
    expectWorking(host, { wrapper: ["sh", "-c", 'ulimit -n 16 && exec "$@"', "sh"] });
  });

  hostTest("fewer end as one error, and leave nothing", (host) => {
    for (const count of [4, 5, 6, 7, 8, 9, 10, 11]) {
      const thinness = { wrapper: ["sh", "-c", `ulimit -n ${count} && exec "$@"`, "sh"] };
      const { exitCode, stdout } = host.call(thinness, "add");
      if (exitCode === 0) expect(JSON.parse(stdout).ips).toHaveLength(2);
      // The loader and the runtime need some before our code runs.
      else if (exitCode === 1 && stdout !== "") expect(JSON.parse(stdout).msg).toMatch(/EMFILE|Too many open files/);
      else expect({ count, exitCode, stdout }).toMatchObject({ stdout: "" });
      // What could not be undone either is remembered.
      expect(host.call({}, "del")).toMatchObject({ exitCode: 0 });
      expect({ count, left: host.left() }).toEqual({ count, left: [] });
    }
  });

  for (const closed of ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]) {
    hostTest(`a chain is attached and detached with streams closed: ${closed}`, (host) => {
      const thinness = { wrapper: ["sh", "-c", `exec "$@" ${closed}`, "sh"] };
      const added = host.call(thinness, "add");
      expect(added.exitCode).toBe(0);
      if (!closed.includes(" >") && !closed.startsWith(">")) expect(JSON.parse(added.stdout).ips).toHaveLength(2);
      // Nothing of what would have been printed went into a file, socket or pipe that got the number.
      const entry = JSON.parse(readFileSync(join(host.state, "results/thin-thin1-eth0"), "utf8"));
      expect(entry.result.ips).toHaveLength(2);
      expect(host.call(thinness, "check").exitCode).toBe(0);
      expect(host.call(thinness, "del").exitCode).toBe(0);
      expect(host.left()).toEqual([]);
    });
  }
});

/** Where processes are limited in memory: a cgroup of either version that can be made here. */
function newMemoryCgroup(bytes: number): { readonly path: string } & Disposable | undefined {
  const places = [["/sys/fs/cgroup/memory", "memory.limit_in_bytes"], ["/sys/fs/cgroup", "memory.max"]] as const;
  for (const [parent, limit] of places) {
    const path = join(parent, `cni-test-${process.pid}`);
    try {
      mkdirSync(path);
      if (existsSync(join(path, limit))) {
        writeFileSync(join(path, limit), String(bytes));
        return { path, [Symbol.dispose]: () => rmdirSync(path) };
      }
      rmdirSync(path);
    } catch {
      // Not here.
    }
  }
  return undefined;
}

describe("little memory", () => {
  using probe = newMemoryCgroup(64 << 20);
  const limited = probe
    ? hostTest
    : (name: string, _: (host: Host) => void) => test.skip(`${name} # needs a memory cgroup`, () => {});
  limited("64 MB are enough for the whole chain", (host) => {
    using cgroup = newMemoryCgroup(64 << 20)!;
    expectWorking(host, {
      wrapper: ["sh", "-c", `echo $$ >${cgroup.path}/cgroup.procs && exec "$@"`, "sh"],
    });
    const peak = ["memory.max_usage_in_bytes", "memory.peak"].map((name) => join(cgroup.path, name)).find(existsSync);
    if (peak) expect(Number(readFileSync(peak, "utf8"))).toBeGreaterThan(1 << 20);
  });
});

/**
 * Refuses system calls that came after 2015, as the profiles of engines do that do not know them: those from `first` on, whose numbers are
 * equal on all processors, and statx, rseq, memfd_create, copy_file_range and membarrier.
 *
 * @see seccomp(2), linux/filter.h struct sock_filter { u16 code; u8 jt, jf; u32 k; }
 */
function withoutNewCalls(errno: number, first: number): readonly string[] {
  const [prctl, later] = process.arch === "arm64" ? [167, [279, 283, 285, 291, 293]] : [157, [319, 324, 326, 332, 334]];
  const script = `
    my ($errno, $first, @command) = @ARGV;
    my @later = (${later.join(", ")});
    my @program = (pack("SCCL", 0x20, 0, 0, 0), pack("SCCL", 0x35, @later + 1, 0, $first));
    push @program, pack("SCCL", 0x15, @later - $_, 0, $later[$_]) for 0 .. $#later;
    push @program, pack("SCCL", 0x06, 0, 0, 0x7fff0000), pack("SCCL", 0x06, 0, 0, 0x00050000 | $errno);
    my $instructions = join "", @program;
    my $filter = pack "S x![P] P", scalar @program, $instructions;
    syscall(${prctl}, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
    syscall(${prctl}, 22, 2, $filter, 0, 0) == 0 or die "seccomp: $!";
    exec @command;
    die "exec: $!"`;
  return ["perl", "-e", script, String(errno), String(first)];
}

describe("a system call filter that does not know newer calls", () => {
  hostTest("and says ENOSYS changes nothing", (host) => expectWorking(host, { wrapper: withoutNewCalls(ENOSYS, 424) }));
  // Even clone3, after whose EPERM the C library starts no thread in any program.
  hostTest("and says EPERM changes nothing", (host) => expectWorking(host, { wrapper: withoutNewCalls(EPERM, 424) }));

  testWith(["perl"], "is what this test says it is", () => {
    // faccessat2
    const use = '$path = "/"; syscall(439, -100, $path, 0, 0); print $! + 0';
    const { stdout, stderr } = Bun.spawnSync([...withoutNewCalls(38, 424), "perl", "-e", use]);
    expect([stdout.toString(), stderr.toString()]).toEqual(["38", ""]);
  });
});

describe("where the kernel forbids machine code of our own", () => {
  for (const verb of ["add", "check", "del", "status"]) {
    hostTest(`cni run ${verb} says so, and does nothing`, ({ call, left }) => {
      const { exitCode, stdout, stderr } = call({ wrapper: WRITE_XOR_EXECUTE }, verb);
      expect([exitCode, `${stdout}${stderr}`]).toEqual([1, expect.stringMatching(/executable memory|W\^X|JIT/)]);
      expect(left()).toEqual([]);
    }, WRITE_XOR_EXECUTE_NEEDS);
  }
});
