/** What the compiled binary does when it is asked to end in the middle of an ADD. @module */
import { expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Namespaces, newNamespaces, runInNetns, until } from "../testing/netns.ts";
import { lockFile } from "../ffi/sys/lock.ts";
import { CNI_UNDER_TEST, ENGINE_ENV, isReading, pluginLink } from "../testing/binary.ts";

interface Place extends Namespaces {
  readonly directory: string;
  /** A bridge whose addresses come from a directory of the test. */
  readonly bridge: object;
  /** Addresses that are reserved. */
  reservations(): string[];
}

function newPlace(): Place {
  const namespaces = newNamespaces();
  const directory = mkdtempSync(join(tmpdir(), "cni-interruption-"));
  const ipam = { type: "host-local", dataDir: `${directory}/ipam`, ranges: [[{ subnet: "10.9.0.0/24" }]] };
  return {
    ...namespaces,
    directory,
    bridge: { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true, ipam },
    reservations: () => readdirSync(`${directory}/ipam/web`).filter((name) => /^[0-9]/.test(name)),
    [Symbol.dispose]() {
      namespaces[Symbol.dispose]();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const linksIn = ({ host }: Place): string[] => runInNetns(host, "ip", "-o", "link").match(/(?<=^\d+: )[^:@]+/gm) ?? [];
const isMasqueraded = ({ host }: Place): boolean => runInNetns(host, "nft", "list", "ruleset").includes("elements");

/** Starts `bridge` as engines do, while somebody else holds the lock on the addresses. @returns once it waits there */
async function startBehindLock(place: Place, wrapper: readonly string[] = []) {
  const { host, container, bridge, directory } = place;
  mkdirSync(`${directory}/ipam/web`, { recursive: true });
  const lock = lockFile(`${directory}/ipam/web/lock`, { timeoutMs: 1000 });
  const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_NETNS: container.path };
  const stdin = Buffer.from(JSON.stringify({ cniVersion: "1.1.0", name: "web", ...bridge }));
  const child = host.run(() => ({
    it: Bun.spawn([...wrapper, pluginLink("bridge")], { env, stdin, stdout: "pipe", stderr: "pipe" }),
  })).it;
  // Before the addresses are asked for.
  await until(() => linksIn(place).includes("br9"));
  return { child, lock };
}

test("a plugin that is asked to end while it waits in an ADD says so and undoes what it did", async () => {
  using place = newPlace();
  const { child, lock } = await startBehindLock(place);
  child.kill("SIGTERM");
  // What is undone waits for it as well.
  lock[Symbol.dispose]();
  await child.exited;
  expect(child.signalCode).toBe("SIGTERM");
  expect(JSON.parse(await child.stdout.text()).msg).toMatch(/Interrupted system call|asked to end by SIGTERM/);
  expect(place.reservations()).toEqual([]);
  expect(linksIn(place)).toEqual(["lo"]);
  expect(isMasqueraded(place)).toBe(false);
});

test("a plugin that is asked to end while it waits for a lock does not wait any longer", async () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-interruption-"));
  mkdirSync(`${directory}/web`);
  using _lock = lockFile(`${directory}/web/lock`, { timeoutMs: 0 });
  const { ino } = statSync(`${directory}/web/lock`);
  const ipam = { type: "host-local", dataDir: directory, ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const stdin = Buffer.from(JSON.stringify({ cniVersion: "1.1.0", name: "web", ipam }));
  const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD" };
  const child = Bun.spawn([pluginLink("host-local")], { env, stdin, stdout: "pipe", stderr: "pipe" });
  await until(() => new RegExp(`-> FLOCK .*:${ino} `).test(readFileSync("/proc/locks", "utf8")));
  child.kill("SIGTERM");
  await child.exited;
  expect(child.signalCode).toBe("SIGTERM");
  expect(JSON.parse(await child.stdout.text())).toMatchObject({
    code: 11,
    msg: expect.stringMatching(/Interrupted system call \(EINTR\)$/),
    details: "the process was asked to end",
  });
  rmSync(directory, { recursive: true });
});

test("a plugin goes on when whoever started it wants a signal ignored", async () => {
  using place = newPlace();
  const { child, lock } = await startBehindLock(place, ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]);
  child.kill("SIGHUP");
  lock[Symbol.dispose]();
  expect(await child.exited).toBe(0);
  expect(JSON.parse(await child.stdout.text()).ips).toHaveLength(1);
  expect(isMasqueraded(place)).toBe(true);
});

/** Puts a program into the directory of the test. */
function program({ directory }: Place, name: string, script: string): void {
  writeFileSync(`${directory}/${name}`, `#!/bin/sh\n${script}\n`);
  chmodSync(`${directory}/${name}`, 0o755);
}

/** Starts `cni run add` of these plugins, in a process group of its own. */
function startRun(place: Place, plugins: readonly object[], options: readonly string[] = []) {
  const { container, directory } = place;
  writeFileSync(`${directory}/web.conflist`, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
  return startCommand(place, ["add", `${directory}/web.conflist`, container.path, "--json", ...options]);
}

function startCommand({ host, directory }: Place, command: readonly string[]) {
  const places = ["--plugin-dir", directory, "--cache-dir", `${directory}/cache`];
  return host.run(() => ({
    it: Bun.spawn(["setsid", CNI_UNDER_TEST, "run", ...command, ...places], {
      env: ENGINE_ENV,
      stdin: "ignore",
      stdout: "pipe",
      stderr: "ignore",
    }),
  })).it;
}

const expectUndone = (place: Place): void => {
  expect(place.reservations()).toEqual([]);
  expect(readdirSync(`${place.directory}/cache/results`)).toEqual([]);
  expect(linksIn(place)).toEqual(["lo", "br9"]);
  expect(isMasqueraded(place)).toBe(false);
};

test("cni run add that is asked to end ends the program of a plugin and undoes the whole chain", async () => {
  using place = newPlace();
  const { directory, bridge } = place;
  program(
    place,
    "slow",
    `case $CNI_COMMAND in ADD) : >${directory}/began; exec sleep 1000 ;; *) : >${directory}/undone ;; esac`,
  );
  const child = startRun(place, [bridge, { type: "slow" }]);
  await until(() => existsSync(`${directory}/began`));
  child.kill("SIGTERM");
  await child.exited;
  expect(child.signalCode).toBe("SIGTERM");
  const { msg } = JSON.parse(await child.stdout.text());
  expect(msg).toBe(`plugin "slow" (ADD): Cannot wait for plugin "${directory}/slow": this process was asked to end`);
  expect(existsSync(`${directory}/undone`)).toBe(true);
  expectUndone(place);
});

/** Takes something, waits, and takes a while to give it back. */
const taking = (directory: string): string =>
  `case $CNI_COMMAND in
  ADD) : >${directory}/taken; exec sleep 1000 ;;
  DEL) sleep 0.3; rm -f ${directory}/taken ;;
  esac`;

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  test(`a plugin undoes its ADD when ${signal} ends the program of its IPAM plugin first`, async () => {
    using place = newPlace();
    const { host, container, bridge, directory } = place;
    program(place, "taking", taking(directory));
    const env = {
      ...ENGINE_ENV,
      CNI_COMMAND: "ADD",
      CNI_CONTAINERID: "c1",
      CNI_NETNS: container.path,
      CNI_PATH: directory,
    };
    const config = { cniVersion: "1.1.0", name: "web", ...bridge, ipam: { type: "taking" } };
    const stdin = Buffer.from(JSON.stringify(config));
    const child = host.run(() => ({
      it: Bun.spawn(["setsid", pluginLink("bridge")], { env, stdin, stdout: "pipe", stderr: "pipe" }),
    })).it;
    await until(() => existsSync(`${directory}/taken`));
    process.kill(-child.pid, signal);
    await child.exited;
    expect(child.signalCode).toBe(signal);
    const { msg, details } = JSON.parse(await child.stdout.text());
    expect(`${msg} ${details}`).not.toContain("clean-up failed");
    expect(existsSync(`${directory}/taken`)).toBe(false);
    expect(linksIn(place)).toEqual(["lo"]);
  });

  test(`cni run add undoes the whole chain when ${signal} ends the program of a plugin first`, async () => {
    using place = newPlace();
    const { directory, bridge } = place;
    program(place, "taking", taking(directory));
    const child = startRun(place, [bridge, { type: "taking" }]);
    await until(() => existsSync(`${directory}/taken`));
    process.kill(-child.pid, signal);
    await child.exited;
    expect(child.signalCode).toBe(signal);
    expect(existsSync(`${directory}/taken`)).toBe(false);
    expectUndone(place);
  });
}

test("cni run add that is asked to end while it undoes another failure undoes all of it, and waits for a lock", async () => {
  using place = newPlace();
  const { directory, bridge } = place;
  program(
    place,
    "failing",
    `case $CNI_COMMAND in
    ADD) : >${directory}/taken; echo '{"code":100,"msg":"No"}'; exit 1 ;;
    DEL) : >${directory}/undoing; sleep 0.3; rm -f ${directory}/taken ;;
    esac`,
  );
  const child = startRun(place, [bridge, { type: "failing" }]);
  await until(() => existsSync(`${directory}/undoing`));
  child.kill("SIGTERM");
  const path = `${directory}/ipam/web/lock`;
  const lock = lockFile(path, { timeoutMs: 1000 });
  await until(() => new RegExp(`-> FLOCK .*:${statSync(path).ino} `).test(readFileSync("/proc/locks", "utf8")));
  child.kill("SIGINT");
  await Bun.sleep(100);
  lock[Symbol.dispose]();
  await child.exited;
  expect(child.signalCode).toMatch(/^SIG(INT|TERM)$/);
  const { code, msg, details } = JSON.parse(await child.stdout.text());
  expect([code, msg]).toEqual([100, 'plugin "failing" (ADD): No']);
  expect(details).not.toContain("undoing");
  expect(existsSync(`${directory}/taken`)).toBe(false);
  expectUndone(place);
});

for (
  const [end, options, reason] of [
    ["the time limit", ["--timeout", "3s"], "did not end within 3000 ms"],
    // What a terminal sends goes to the whole group.
    ["a further Ctrl-C", [], "signal 2 ended it"],
  ] as const
) {
  test(`a program that hangs while an ADD is undone is ended by ${end}`, async () => {
    using place = newPlace();
    const { directory, bridge } = place;
    program(
      place,
      "hanging",
      `[ $CNI_COMMAND = ADD ] && exit 1
      : >${directory}/undoing
      exec sleep 1000`,
    );
    const child = startRun(place, [bridge, { type: "hanging" }], options);
    await until(() => existsSync(`${directory}/undoing`));
    process.kill(-child.pid, "SIGINT");
    await child.exited;
    expect(child.signalCode).toBe("SIGINT");
    const { details } = JSON.parse(await child.stdout.text());
    expect(details).toContain("clean-up failed");
    expect(details).toContain(reason);
    expect(place.reservations()).toEqual([]);
  });
}

for (const verb of ["del", "gc"]) {
  test(`cni run ${verb} waits for the program of a plugin that outlives a cni run add which was killed`, async () => {
    using place = newPlace();
    const { container, directory, bridge } = place;
    program(
      place,
      "late",
      `case $CNI_COMMAND in
      ADD) echo $$ >${directory}/late.pid; : >${directory}/began; sleep 1; : >${directory}/taken ;;
      DEL) rm -f ${directory}/taken ;;
      esac`,
    );
    const child = startRun(place, [bridge, { type: "late" }]);
    await until(() => existsSync(`${directory}/began`));
    child.kill("SIGKILL");
    await child.exited;
    const words = verb === "gc" ? ["--all"] : [container.path];
    expect(await startCommand(place, [verb, `${directory}/web.conflist`, ...words]).exited).toBe(0);
    // Nothing is made afterwards.
    await until(() => !existsSync(`/proc/${readFileSync(`${directory}/late.pid`, "utf8").trim()}`));
    expect(existsSync(`${directory}/taken`)).toBe(false);
    expectUndone(place);
  });
}

test("cni run del does not wait for what the program of a plugin left running", async () => {
  using place = newPlace();
  const { container, directory, bridge } = place;
  program(
    place,
    "parent",
    `[ $CNI_COMMAND = ADD ] || exit 0
    sleep 1000 <&- >&- 2>&- &
    echo $! >${directory}/left
    echo '{"cniVersion":"1.1.0"}'`,
  );
  expect(await startRun(place, [bridge, { type: "parent" }]).exited).toBe(0);
  const pid = Number(readFileSync(`${directory}/left`, "utf8"));
  expect(await startCommand(place, ["del", `${directory}/web.conflist`, container.path]).exited).toBe(0);
  process.kill(pid, "SIGKILL");
  expectUndone(place);
});

test("cni run add of a long configuration undoes all of it when it is asked to end", async () => {
  using place = newPlace();
  const { directory, bridge } = place;
  program(place, "taking", taking(directory));
  const long = Array.from({ length: 10_000 }, (_, k) => ({ k, s: "x".repeat(60) }));
  const child = startRun(place, [{ ...bridge, long }, { type: "taking" }]);
  await until(() => existsSync(`${directory}/taken`));
  process.kill(-child.pid, "SIGTERM");
  await child.exited;
  expect(child.signalCode).toBe("SIGTERM");
  expect(JSON.parse(await child.stdout.text()).msg).toStartWith('plugin "taking" (ADD): ');
  expect(existsSync(`${directory}/taken`)).toBe(false);
  expectUndone(place);
});

test("cni run add ends at once when it is asked to before it has a configuration", async () => {
  for (const network of ["-", "./pipe"]) {
    using place = newPlace();
    const { container, directory } = place;
    Bun.spawnSync(["mkfifo", `${directory}/pipe`]);
    // Open for writing, so that more may come.
    const words = [
      "sh",
      "-c",
      'exec 3<>./pipe; exec "$@"',
      "sh",
      CNI_UNDER_TEST,
      "run",
      "add",
      network,
      container.path,
    ];
    const child = Bun.spawn(words, {
      cwd: directory,
      env: ENGINE_ENV,
      stdin: "pipe",
      stdout: "ignore",
      stderr: "ignore",
    });
    await until(() => isReading(child.pid));
    child.kill("SIGINT");
    await child.exited;
    expect(child.signalCode).toBe("SIGINT");
  }
});
