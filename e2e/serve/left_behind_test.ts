/** The server that an ADD without one leaves behind. */
import { expect } from "bun:test";
import { mkdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { START_PATH } from "../../server/on_demand.ts";
import { CNI_PROGRAM, testWith } from "../../testing/binary.ts";
import { BRIDGE_CONFIG, bridgeCall } from "../../testing/bridge_call.ts";
import {
  MACHINE_PROGRAMS,
  type MachineOfNamespaces,
  newMachineOfNamespaces,
} from "../../testing/machine_of_namespaces.ts";
import { canBootSystemd, CGROUPS } from "../../testing/systemd_machine.ts";
import { until } from "../../testing/netns.ts";

const BIN = "/run/bin";
const ALLOW = `echo '{"server": true}' >/etc/cni/cni.json`;
const call = (verb: string, container: string, program?: string): string => bridgeCall(BIN, verb, container, program);

async function withMachine(use: (machine: MachineOfNamespaces) => void | Promise<void>): Promise<void> {
  await using machine = await newMachineOfNamespaces();
  succeed(machine, `${CNI_PROGRAM} install ${BIN}; for name in c1 c2 c3; do ip netns add $name; done`);
  await use(machine);
}

function succeed({ run }: MachineOfNamespaces, script: string): string {
  const { exitCode, stdout, stderr } = run(script);
  expect([script, exitCode, stderr]).toEqual([script, 0, ""]);
  return stdout;
}

/** Whether the call has left a server behind: its process is there before the call has ended. */
const supervisors = (machine: MachineOfNamespaces): string[] =>
  succeed(machine, "pgrep -f '^/run/bin/cni-full serve' || :").split("\n").filter((pid) => pid !== "");

const isServed = (machine: MachineOfNamespaces): boolean => machine.run(`${BIN}/cni serve --check`).exitCode === 0;

/** What leaves none behind, after the lines of the shell that make it so. */
const WITHOUT: Readonly<Record<string, string>> = {
  "in a container": call("ADD", "c1"),
  "forbidden by its file": `echo '{"server": false}' >/etc/cni/cni.json; ${call("ADD", "c1")}`,
  "of a DEL": `${ALLOW}; ${call("DEL", "c1")}`,
  "of cni run":
    `${ALLOW}; mkdir /etc/cni/net.d; echo '${BRIDGE_CONFIG}' >/etc/cni/net.d/lan.conf; ${BIN}/cni run add lan c1`,
  "whose caller names a socket": `${ALLOW}; export CNI_SOCKET=/run/other.sock; ${call("ADD", "c1")}`,
  "in another network namespace": `${ALLOW}; ${call("ADD", "c1", `nsenter --net=/run/netns/c2 ${BIN}/bridge`)}`,
  "in other mounts": `${ALLOW}; ${call("ADD", "c1", `unshare -m ${BIN}/bridge`)}`,
  "with fewer capabilities than process 1": `${ALLOW}; ${
    call("ADD", "c1", `setpriv --bounding-set -sys_boot ${BIN}/bridge`)
  }`,
  "by the program itself": `${ALLOW}; ${CNI_PROGRAM} install --no-shim ${BIN} >/dev/null; ${call("ADD", "c1")}`,
  "of process 1": `${ALLOW}; ${call("ADD", "c1", `unshare -p --fork --mount-proc ${BIN}/bridge`)}`,
};

for (const [what, script] of Object.entries(WITHOUT)) {
  testWith(MACHINE_PROGRAMS, `a call ${what} leaves no server behind`, () =>
    withMachine((machine) => {
      const { exitCode, stderr } = machine.run(script);
      expect([exitCode, stderr]).toEqual([0, ""]);
      expect(supervisors(machine)).toEqual([]);
      // Nor has one tried to start.
      expect(succeed(machine, "ls /run/cni 2>/dev/null || :")).not.toMatch(/start|sock/);
    }));
}

testWith(
  MACHINE_PROGRAMS,
  "a file that cannot be read is named, and the call succeeds",
  () =>
    withMachine((machine) => {
      for (const [text, problem] of [["{", "it is no JSON"], ['{"server": 1}', '"server" is neither true nor false']]) {
        const { exitCode, stderr } = machine.run(`echo '${text}' >/etc/cni/cni.json; ${call("ADD", "c1")}`);
        expect([exitCode, stderr]).toEqual([
          0,
          `cni: no server for the next calls: Cannot use "/etc/cni/cni.json": ${problem} ` +
          '(expected {"server": true} or {"server": false})\n',
        ]);
        succeed(machine, call("DEL", "c1"));
        expect(supervisors(machine)).toEqual([]);
      }
    }),
);

testWith(
  MACHINE_PROGRAMS,
  "the first ADD leaves a server behind that has nothing of its caller",
  () =>
    withMachine(async (machine) => {
      // The streams of the call, also under other numbers, end with it: else this would wait for the server.
      succeed(
        machine,
        `${ALLOW}; mkdir /run/caller; mount -t tmpfs none /run/caller; cd /run/caller
       echo 100 >/proc/self/oom_score_adj; exec 3>&1 7>&1 8>&2; ${call("ADD", "c1")}; cd /; umount /run/caller`,
      );
      // Its own children have its command line until they run theirs.
      const [pid] = supervisors(machine);
      await until(() => isServed(machine));
      await until(() => supervisors(machine).length === 1);
      expect(supervisors(machine)).toEqual([pid!]);
      // Its session, and the terminal of that: see proc(5).
      expect(succeed(machine, `cut -d ' ' -f 6,7 </proc/${pid}/stat`)).toBe(`${pid} 0\n`);
      expect(
        succeed(machine, `cd /proc/${pid}; for each in cwd fd/0 fd/1 fd/2; do readlink $each; done; cat oom_score_adj`)
          .split("\n"),
      ).toEqual([
        ...["/", "/dev/null", "/dev/null", "/dev/null", "0", ""],
      ]);
      expect(succeed(machine, `tr '\\0' '\\n' </proc/${pid}/environ`)).toBe(
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n",
      );
      const served = () => JSON.parse(succeed(machine, `${BIN}/cni serve --status --json`));
      expect(served()).toMatchObject({ served: 0, isOnDemand: true });
      succeed(machine, call("ADD", "c2"));
      expect(served().served).toBe(1);
      for (const container of ["c1", "c2"]) succeed(machine, call("DEL", container));
      // A new version takes its place at the next call, and a removal ends it.
      succeed(machine, `${CNI_PROGRAM} install ${BIN} >/dev/null`);
      expect(supervisors(machine)).toEqual([]);
      succeed(machine, call("ADD", "c1"));
      await until(() => isServed(machine));
      succeed(machine, call("DEL", "c1"));
      succeed(machine, `${BIN}/cni uninstall ${BIN}`);
      expect(supervisors(machine)).toEqual([]);
      expect(succeed(machine, "ls /run/cni")).not.toMatch(/\.sock$|control|start/m);
    }),
  180_000,
);

testWith(
  [...MACHINE_PROGRAMS, "busybox"],
  "its log is syslogd's where one runs, and calls outlive syslogd",
  () =>
    withMachine(async (machine) => {
      // The real /dev is the machine's that runs the tests.
      succeed(machine, "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; busybox syslogd -O /run/messages");
      succeed(machine, `${ALLOW}; ${call("ADD", "c1")}`);
      await until(() => isServed(machine));
      succeed(machine, call("DEL", "c1"));
      const messages = succeed(machine, "cat /run/messages");
      expect(messages).toMatch(/ cni: Listening on .*cni\.sock/);
      expect(messages).toMatch(/ bridge DEL c1 eth0 \/run\/netns\/c1: [\d.]+ ms, status 0, called by \d+$/m);
      succeed(machine, `pkill -f '^busybox syslogd'; ${call("ADD", "c1")}; ${call("DEL", "c1")}`);
      expect(JSON.parse(succeed(machine, `${BIN}/cni serve --status --json`)).served).toBe(3);
    }),
  180_000,
);

testWith(MACHINE_PROGRAMS, "what the host unmounts, no thread of a server keeps", () =>
  withMachine(async (machine) => {
    succeed(machine, "mount --make-rshared /; mkdir /etc/cni/disk; mount -t tmpfs none /etc/cni/disk");
    succeed(machine, `${ALLOW}; ${call("ADD", "c1")}`);
    await until(() => isServed(machine));
    const keepers = () => succeed(machine, "grep -ls ' /etc/cni/disk ' /proc/[0-9]*/task/*/mountinfo || :");
    expect(keepers()).not.toBe("");
    succeed(machine, "umount /etc/cni/disk");
    expect(keepers()).toBe("");
  }), 180_000);

/** A control group that ends with its scope, as that of an engine's unit. */
function newGroup(): Disposable & { readonly path: string } {
  const path = join(CGROUPS!, `cni-caller-${process.pid}`);
  mkdirSync(path);
  return { path, [Symbol.dispose]: () => rmdirSync(path) };
}

if (canBootSystemd) {
  testWith(
    MACHINE_PROGRAMS,
    "the end of the caller's control group does not end the server",
    () =>
      withMachine(async (machine) => {
        using group = newGroup();
        const groupsOf = (pid: string) => succeed(machine, `cat /proc/${pid}/cgroup`);
        succeed(machine, `${ALLOW}; echo $$ >${group.path}/cgroup.procs; ${call("ADD", "c1")}`);
        await until(() => isServed(machine));
        const [pid = ""] = supervisors(machine);
        expect(groupsOf(pid)).toBe(groupsOf("1"));
        expect(readFileSync(join(group.path, "cgroup.procs"), "utf8")).toBe("");
      }),
  );
}

testWith(MACHINE_PROGRAMS, "of many ADDs at once, one leaves a server behind", () =>
  withMachine(async (machine) => {
    const names = Array.from({ length: 5 }, (_, i) => `many${i}`);
    const calls = names.map((name) => `(ip netns add ${name}; ${call("ADD", name)} >/run/${name}.out) &`).join("\n");
    succeed(machine, `${ALLOW}\n${calls}\nwait`);
    await until(() => isServed(machine));
    expect(supervisors(machine)).toHaveLength(1);
    for (const name of names) expect(JSON.parse(succeed(machine, `cat /run/${name}.out`)).ips).toHaveLength(1);
    // One that ends at once is not started by each call.
    const justStarted = `touch ${START_PATH}`;
    succeed(machine, `kill -9 ${supervisors(machine)[0]}; ${justStarted}; ${call("ADD", "c1")}`);
    await until(() => supervisors(machine).length === 0);
    succeed(machine, `${justStarted}; ${call("ADD", "c2")}`);
    expect(supervisors(machine)).toEqual([]);
  }), 600_000);
