import { expect, test } from "bun:test";
import { join } from "node:path";
import {
  addNamedNetns,
  listNamedNetns,
  namedNetnsPath,
  namedNetnsPaths,
  nameOfNetnsPath,
  removeNamedNetns,
} from "./named.ts";
import { openNetns } from "./netns.ts";

const MODULE = join(import.meta.dir, "named.ts");
let names = 0;
const newName = () => `cni-test-${process.pid}-${names++}`;

interface Ended {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(...command: string[]): Ended {
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { stdin: "ignore", timeout: 20_000 });
  return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
}

/** The names as ip(8) sees them. */
const ipNames = () => run("ip", "netns", "list").stdout.split("\n").flatMap((line) => line.split(" ")[0] || []);

/** Removes what a test made, whoever has removed it before. */
function cleaningUp(name: string): Disposable {
  return { [Symbol.dispose]: () => void run("ip", "netns", "del", name) };
}

/** Runs code with this module's functions in a process of its own, in mounts of its own; `before` is a shell command. */
function inFreshMounts(code: string, before = "true"): Ended {
  const script = `import * as named from ${JSON.stringify(MODULE)};\n${code}`;
  return run("unshare", "-m", "sh", "-ec", `${before}; exec "$@"`, "sh", process.execPath, "-e", script);
}

/** Where nothing is to be said. */
const refuse = (message: string): never => {
  throw new Error(message);
};

const execCode = (name: string, ...argv: string[]) =>
  `named.execInNamedNetns(${JSON.stringify(name)}, ${JSON.stringify(argv)}, console.error);`;

test("addNamedNetns() makes what ip(8) knows and can remove", () => {
  const name = newName();
  using _ = cleaningUp(name);
  addNamedNetns(name, refuse);
  expect(ipNames()).toContain(name);
  expect(run("ip", "-n", name, "-o", "link").stdout).toMatch(/^1: lo: <LOOPBACK,UP,LOWER_UP> [^\n]*\n$/);
  expect(run("ip", "netns", "del", name).exitCode).toBe(0);
  expect(listNamedNetns()).not.toContain(name);
});

test("listNamedNetns() and removeNamedNetns() know what ip(8) made", () => {
  const name = newName();
  using _ = cleaningUp(name);
  run("ip", "netns", "add", name);
  expect(listNamedNetns()).toContain(name);
  removeNamedNetns(name);
  expect(ipNames()).not.toContain(name);
});

/** Takes the lock that `ip netns add` takes, as everybody may. The shell becomes the program that waits, and has it by another file. */
const LOCKED = "mkdir -p /run/netns; exec 9</run/netns; flock 9";

test("addNamedNetns() waits a second for those who make the directory, continues without them and names them", () => {
  const code = 'named.addNamedNetns("late", console.error); console.log(named.listNamedNetns().join());';
  expect(inFreshMounts(code, `mount -t tmpfs none /run; ${LOCKED}`)).toEqual({
    exitCode: 0,
    stdout: "late\n",
    stderr: expect.stringMatching(/^Cannot lock "\/run\/netns": it is held by .*process.*; continuing without it\n$/),
  });
});

test("addNamedNetns() needs no lock where the directory is mounted", () => {
  const code = 'named.addNamedNetns("late", console.error); console.log(named.listNamedNetns().join());';
  const mounted = "mkdir /run/netns; mount -t tmpfs none /run/netns";
  expect(inFreshMounts(code, `mount -t tmpfs none /run; ${mounted}; ${LOCKED}`)).toEqual({
    exitCode: 0,
    stdout: "late\n",
    stderr: "",
  });
});

test("addNamedNetns() leaves the thread where it was", () => {
  const name = newName();
  using _ = cleaningUp(name);
  using before = openNetns("/proc/thread-self/ns/net");
  addNamedNetns(name, refuse);
  using after = openNetns("/proc/thread-self/ns/net");
  using made = openNetns(namedNetnsPath(name));
  expect(after.identity).toBe(before.identity);
  expect(made.identity).not.toBe(before.identity);
});

test("addNamedNetns() refuses a name that is taken and leaves it alone", () => {
  const name = newName();
  using _ = cleaningUp(name);
  addNamedNetns(name, refuse);
  using made = openNetns(namedNetnsPath(name));
  expect(() => addNamedNetns(name, refuse)).toThrow("EEXIST");
  using still = openNetns(namedNetnsPath(name));
  expect(still.identity).toBe(made.identity);
});

test("removeNamedNetns() fails for a name that is not there", () => {
  expect(() => removeNamedNetns(newName())).toThrow("ENOENT");
});

test.each(["", ".", "..", "a/b", "a\0b"])("namedNetnsPath() refuses %j, as ip(8) does", (name) => {
  expect(() => namedNetnsPath(name)).toThrow(RangeError);
  expect(() => addNamedNetns(name, refuse)).toThrow(RangeError);
});

test("addNamedNetns() makes directory and shared mount where there are none, as ip(8) does", () => {
  const show = "findmnt -R -n -o TARGET,FSTYPE,PROPAGATION --raw /run";
  const ours = inFreshMounts(
    `named.addNamedNetns("a", console.error); console.write(Bun.spawnSync("${show}".split(" ")).stdout.toString());`,
    "mount -t tmpfs tmpfs /run",
  );
  const theirs = run("unshare", "-m", "sh", "-ec", `mount -t tmpfs tmpfs /run; ip netns add a; ${show}`);
  expect(ours.stdout).toBe(theirs.stdout);
  expect(ours.stdout).toContain("/run/netns/a nsfs shared");
});

test("removeNamedNetns() removes the file that a reboot leaves", () => {
  const { stdout } = inFreshMounts(
    'named.removeNamedNetns("a"); console.log(named.listNamedNetns().length);',
    "mount -t tmpfs tmpfs /run; mkdir /run/netns; touch /run/netns/a",
  );
  expect(stdout).toBe("0\n");
});

test("execInNamedNetns() shows the program what `ip netns exec` shows", () => {
  const name = newName();
  using _ = cleaningUp(name);
  addNamedNetns(name, refuse);
  run("ip", "-n", name, "link", "add", "br7", "type", "bridge");
  const look = [
    "sh",
    "-c",
    "ls /sys/class/net; ip -o link | cut -d: -f1,2; readlink /proc/self/ns/net; findmnt -n -o FSTYPE,SOURCE /sys; grep Sig[BI] /proc/self/status",
  ];
  const ours = inFreshMounts(execCode(name, ...look));
  expect(ours.stdout).toBe(run("ip", "netns", "exec", name, ...look).stdout);
  expect(ours.stdout).toContain("br7\nlo\n");
});

test("execInNamedNetns() becomes the program: exit status and process are its own", () => {
  const name = newName();
  using _ = cleaningUp(name);
  addNamedNetns(name, refuse);
  expect(inFreshMounts(execCode(name, "sh", "-c", "exit 7")).exitCode).toBe(7);
  const code = `await Bun.write(Bun.stdout, process.pid + "\\n"); ${execCode(name, "sh", "-c", "echo $$")}`;
  const [before, after] = inFreshMounts(code).stdout.split("\n");
  expect(after).toBe(before!);
});

test("execInNamedNetns() puts the files of /etc/netns/NAME into /etc, and names what does not fit", () => {
  const name = newName();
  using _ = cleaningUp(name);
  addNamedNetns(name, refuse);
  const files =
    `mount -t tmpfs tmpfs /etc; mkdir -p /etc/netns/${name}; echo own > /etc/netns/${name}/hosts; echo all > /etc/hosts; touch /etc/netns/${name}/x`;
  const { stdout, stderr } = inFreshMounts(execCode(name, "cat", "/etc/hosts"), files);
  expect(stdout).toBe("own\n");
  expect(stderr).toContain(`Cannot mount "/etc/netns/${name}/x" on "/etc/x": No such file or directory`);
});

test("execInNamedNetns() fails for a program or namespace that is not there", () => {
  const name = newName();
  using _ = cleaningUp(name);
  addNamedNetns(name, refuse);
  expect(inFreshMounts(execCode(name, "/nonexistent/program")).stderr).toContain(
    'Cannot execute "/nonexistent/program": No such file',
  );
  expect(inFreshMounts(execCode(newName(), "true")).stderr).toContain("Cannot open network namespace");
});

test("nameOfNetnsPath() finds the name of both paths that it has, and of no other", () => {
  expect(namedNetnsPaths("web").map(nameOfNetnsPath)).toEqual(["web", "web"]);
  for (const path of ["/proc/1/ns/net", "/run/netns/", "/run/netns/a/b", "/x/run/netns/web"]) {
    expect(nameOfNetnsPath(path)).toBeUndefined();
  }
});
