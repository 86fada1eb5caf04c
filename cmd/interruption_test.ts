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
import { inNetns, type Namespaces, newNamespaces } from "../ffi/testing.ts";
import { lockFile } from "../ffi/sys/lock.ts";
import { CNI, ENGINE_ENV, pluginLink } from "./testing.ts";

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

/** Waits for something that another process does. */
async function until(happened: () => boolean): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!happened()) {
    if (performance.now() > deadline) throw new Error(`It did not happen: ${happened}`);
    await Bun.sleep(5);
  }
}

const linksIn = ({ host }: Place): string[] => inNetns(host, "ip", "-o", "link").match(/(?<=^\d+: )[^:@]+/gm) ?? [];
const isMasqueraded = ({ host }: Place): boolean => inNetns(host, "nft", "list", "ruleset").includes("elements");

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
  expect(linksIn(place)).toEqual(["lo", "br9"]);
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

test("cni run add that is asked to end ends the program of a plugin and undoes the whole chain", async () => {
  using place = newPlace();
  const { host, container, directory, bridge } = place;
  const slow = `${directory}/slow`;
  const script =
    `case $CNI_COMMAND in ADD) : >${directory}/began; exec sleep 1000 ;; *) : >${directory}/undone ;; esac`;
  writeFileSync(slow, `#!/bin/sh\n${script}\n`);
  chmodSync(slow, 0o755);
  const list = { cniVersion: "1.1.0", name: "web", plugins: [bridge, { type: "slow" }] };
  writeFileSync(`${directory}/web.conflist`, JSON.stringify(list));
  const words = ["run", "add", `${directory}/web.conflist`, container.path, "--json"];
  const places = ["--plugin-dir", directory, "--cache-dir", `${directory}/cache`];
  const child = host.run(() => ({
    it: Bun.spawn([CNI, ...words, ...places], { env: ENGINE_ENV, stdin: "ignore", stdout: "pipe", stderr: "ignore" }),
  })).it;
  await until(() => existsSync(`${directory}/began`));
  child.kill("SIGTERM");
  await child.exited;
  expect(child.signalCode).toBe("SIGTERM");
  const { msg } = JSON.parse(await child.stdout.text());
  expect(msg).toBe(`plugin "slow" (ADD): Cannot wait for plugin "${slow}": this process was asked to end`);
  expect(existsSync(`${directory}/undone`)).toBe(true);
  expect(place.reservations()).toEqual([]);
  expect(readdirSync(`${directory}/cache/results`)).toEqual([]);
  expect(linksIn(place)).toEqual(["lo", "br9"]);
  expect(isMasqueraded(place)).toBe(false);
});
