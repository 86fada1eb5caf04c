/** Callers and workers that end in the middle of a call: what is done half is undone, or removed by DEL. @module */
import { expect, test } from "bun:test";
import { chmodSync, existsSync, mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { ENGINE_ENV, runPlugin, testWith } from "../../testing/binary.ts";
import { linkNames, type Namespaces, newNamespaces, until } from "../../testing/netns.ts";
import { useServer } from "../../testing/used_server.ts";

const server = await useServer();

const busyWorkers = (): number[] =>
  server.status().workers.filter(({ state }) => state === "busy").map(({ pid }) => pid);
const isIdle = (): boolean => server.status().workers.length > 1 && busyWorkers().length === 0;

/** An IPAM plugin that says what it is asked in a file, and waits in ADD until the file "go" is there. */
const SLOW_IPAM = `#!/bin/sh
cat >/dev/null
trap "" TERM
cd "$(dirname "$0")"
echo "$CNI_COMMAND" >>log
[ "$CNI_COMMAND" = ADD ] || exit 0
while [ ! -e go ]; do sleep 0.01; done
echo end >>log
echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24"}]}'
`;

interface Workspace extends Namespaces {
  readonly directory: string;
  readonly stdin: string;
  log(): string;
  start(command: string, wrapper?: readonly string[]): Bun.Subprocess<Blob, "pipe", "pipe">;
}

function newWorkspace(): Workspace {
  const namespaces = newNamespaces();
  const directory = mkdtempSync(join(tmpdir(), "cni-serve-"));
  writeFileSync(`${directory}/slow`, SLOW_IPAM);
  chmodSync(`${directory}/slow`, 0o755);
  const stdin = JSON.stringify({
    ...{ cniVersion: "1.0.0", name: "web", type: "bridge", bridge: "br9", ipMasq: true, ipam: { type: "slow" } },
  });
  const { host, container } = namespaces;
  return {
    ...{ ...namespaces, directory, stdin },
    log: () => existsSync(`${directory}/log`) ? readFileSync(`${directory}/log`, "utf8").replaceAll("\n", " ") : "",
    start: (command, wrapper = []) =>
      host.run(() => ({
        child: Bun.spawn([...wrapper, `${server.bin}/bridge`], {
          env: {
            ...{ ...ENGINE_ENV, ...server.env, CNI_PATH: directory },
            ...{ CNI_COMMAND: command, CNI_CONTAINERID: "c1", CNI_NETNS: container.path },
          },
          stdin: new Blob([stdin]),
          stdout: "pipe",
          stderr: "pipe",
        }),
      })).child,
    [Symbol.dispose]() {
      namespaces[Symbol.dispose]();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** An ADD that waits for its IPAM plugin. */
async function startWaitingAdd(workspace: Workspace) {
  const add = workspace.start("ADD");
  await until(() => workspace.log() === "ADD ");
  return add;
}

const release = ({ directory }: Workspace): void => writeFileSync(`${directory}/go`, "");
const expectNothingLeft = ({ host, container }: Workspace): void => {
  expect(linkNames(host).filter((name) => name.startsWith("veth"))).toEqual([]);
  expect(linkNames(container)).toEqual(["lo"]);
};

/** A DEL that has waited, and removes what the ADD leaves. */
async function expectDelAfterAdd(workspace: Workspace, del: Bun.Subprocess): Promise<void> {
  release(workspace);
  expect(await del.exited).toBe(0);
  expect(workspace.log()).toMatch(/^ADD (end )?DEL DEL $/);
  expectNothingLeft(workspace);
}

test("an ADD whose caller is killed is undone, and the next DEL waits for that", async () => {
  using workspace = newWorkspace();
  const add = await startWaitingAdd(workspace);
  const killedAt = performance.now();
  add.kill("SIGKILL");
  await add.exited;
  const del = workspace.start("DEL");
  await until(() => busyWorkers().length === 2 || workspace.log() === "ADD DEL DEL ");
  // A DEL that does not wait calls its IPAM plugin within this time.
  await Bun.sleep(100);
  const log = workspace.log();
  // Then the IPAM plugin of the ADD is killed, and its undoing calls it too: emulated, that is before somebody looks.
  if (performance.now() - killedAt < 250) expect(log).toBe("ADD ");
  await expectDelAfterAdd(workspace, del);
});

test("a DEL that runs without the server waits for it too", async () => {
  using workspace = newWorkspace();
  const add = await startWaitingAdd(workspace);
  add.kill("SIGKILL");
  await add.exited;
  // A shim connects to no server if a standard stream is closed.
  const del = workspace.start("DEL", ["sh", "-c", 'exec "$@" 2>&-', "sh"]);
  const programOf = (pid: number) => basename(readlinkSync(`/proc/${pid}/exe`));
  await until(() => programOf(del.pid) === "bridge");
  // One that does not wait executes the full binary within this time.
  await Bun.sleep(100);
  expect([programOf(del.pid), workspace.log()]).toEqual(["bridge", "ADD "]);
  await expectDelAfterAdd(workspace, del);
});

test("a DEL that waits for an ADD ends when its caller is told to", async () => {
  using workspace = newWorkspace();
  const add = await startWaitingAdd(workspace);
  const del = workspace.start("DEL");
  await until(() => busyWorkers().length === 2);
  del.kill("SIGTERM");
  await del.exited;
  expect(del.signalCode).toBe("SIGTERM");
  expect(workspace.log()).toBe("ADD ");
  release(workspace);
  expect(await add.exited).toBe(0);
  expect(await workspace.start("DEL").exited).toBe(0);
  expectNothingLeft(workspace);
});

test("a DEL by a plugin that an ADD has started does not wait for that ADD", async () => {
  using workspace = newWorkspace();
  const nested = `CNI_COMMAND=DEL CNI_SOCKET=${server.socket} ${server.bin}/dummy`;
  const script = `#!/bin/sh\nconfig=$(cat)\n[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion":"1.0.0","name":"web","type":"dummy"}' | ${nested} || exit 1
echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24"}]}'\n`;
  writeFileSync(`${workspace.directory}/slow`, script);
  // The call of the test before may not be counted yet.
  await until(isIdle);
  const before = server.status().served;
  expect(await workspace.start("ADD").exited).toBe(0);
  await until(isIdle);
  expect(server.status().served - before).toBe(2);
  expect(await workspace.start("DEL").exited).toBe(0);
  expectNothingLeft(workspace);
});

/** Writes the IPAM plugin anew. */
function setIpam({ directory }: Workspace, script: string): void {
  writeFileSync(`${directory}/slow`, `#!/bin/sh\n${script}\n`);
}

const SUCCEED =
  `cat >/dev/null; [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24"}]}'`;

test("a worker whose caller is killed in DEL does not wait for a program that hangs", async () => {
  using workspace = newWorkspace();
  setIpam(workspace, SUCCEED);
  expect(await workspace.start("ADD").exited).toBe(0);
  setIpam(workspace, `echo $$ >"$(dirname "$0")/log"; exec sleep 1000`);
  const call = workspace.start("DEL");
  await until(() => workspace.log() !== "");
  call.kill("SIGKILL");
  await until(isIdle);
  process.kill(Number(workspace.log()), "SIGKILL");
  setIpam(workspace, SUCCEED);
  expect(await workspace.start("DEL").exited).toBe(0);
  expectNothingLeft(workspace);
});

test("a worker whose caller is killed does not wait for the reader of a program's standard error", async () => {
  using workspace = newWorkspace();
  setIpam(workspace, `head -c 300000 /dev/zero >&2; ${SUCCEED}`);
  writeFileSync(`${workspace.directory}/stdin`, workspace.stdin);
  const script = `"$0" <${workspace.directory}/stdin 2>&1 >/dev/null | exec sleep 1000`;
  const shell = workspace.start("ADD", ["sh", "-c", script]);
  await until(() => childrenOf(shell.pid, "bridge").length === 1 && busyWorkers().length === 1);
  const [worker = 0] = busyWorkers();
  await until(() => childrenOf(worker, "head").length === 1 || childrenOf(worker, "slow").length === 1);
  process.kill(childrenOf(shell.pid, "bridge")[0]!, "SIGKILL");
  await until(isIdle);
  expectNothingLeft(workspace);
  for (const reader of childrenOf(shell.pid, "sleep")) process.kill(reader, "SIGKILL");
  await shell.exited;
});

test("an ADD whose worker is killed ends with an error at once, and DEL removes what is there", async () => {
  using workspace = newWorkspace();
  const add = await startWaitingAdd(workspace);
  const [worker] = busyWorkers();
  const killedAt = performance.now();
  process.kill(worker!, "SIGKILL");
  expect(await add.exited).toBe(1);
  expect(performance.now() - killedAt).toBeLessThan(5000);
  expect(JSON.parse(await add.stdout.text())).toMatchObject({ code: 11 });
  release(workspace);
  expect(await workspace.start("DEL").exited).toBe(0);
  expectNothingLeft(workspace);
  await until(isIdle);
});

testWith(["strace"], "a worker that fails after its answer does not make the call fail", async () => {
  await until(isIdle);
  const workers = server.status().workers.map(({ pid }) => pid);
  // The second one is that back to the root directory.
  const fault = ["-e", "trace=fchdir", "-e", "inject=fchdir:error=EIO:when=2"];
  const tracer = Bun.spawn([
    "strace",
    "-q",
    "-o",
    "/dev/null",
    ...fault,
    ...workers.flatMap((pid) => ["-p", `${pid}`]),
  ]);
  await until(() => workers.every((pid) => !/^TracerPid:\t0$/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))));
  expect(server.runPlugin("bridge")).toEqual(runPlugin("bridge"));
  await until(() => workers.some((pid) => !existsSync(`/proc/${pid}`)));
  tracer.kill("SIGINT");
  await tracer.exited;
  await until(() => server.status().workers.filter(({ state }) => state === "idle").length === 2);
});

test("an ADD whose caller is told to end is undone before the caller ends", async () => {
  using workspace = newWorkspace();
  const add = await startWaitingAdd(workspace);
  add.kill("SIGTERM");
  await add.exited;
  expect(add.signalCode).toBe("SIGTERM");
  expect(JSON.parse(await add.stdout.text()).code).toBeNumber();
  expectNothingLeft(workspace);
});

test("an ADD whose answer nobody takes is undone when its caller is gone", async () => {
  using workspace = newWorkspace();
  release(workspace);
  writeFileSync(`${workspace.directory}/stdin`, workspace.stdin);
  const env = {
    ...ENGINE_ENV,
    ...server.env,
    CNI_PATH: workspace.directory,
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
  };
  // The pipe is full, and its reader lives on.
  const script =
    `(head -c 65536 /dev/zero; exec ${server.bin}/bridge <${workspace.directory}/stdin) | { echo; exec sleep 1000; }`;
  const shell = workspace.host.run(() => ({
    child: Bun.spawn(["sh", "-c", script], {
      env: { ...env, CNI_NETNS: workspace.container.path },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    }),
  })).child;
  await until(() => workspace.log() === "ADD end ");
  const [shim] = childrenOf(shell.pid, "bridge");
  await until(() => linkNames(workspace.container).includes("eth0"));
  process.kill(shim!, "SIGKILL");
  await until(isIdle);
  expectNothingLeft(workspace);
  for (const reader of childrenOf(shell.pid, "sleep")) process.kill(reader, "SIGKILL");
  await shell.exited;
});

function childrenOf(pid: number, name: string): number[] {
  const { stdout } = Bun.spawnSync(["pgrep", "-P", `${pid}`, "-x", name]);
  return stdout.toString().split("\n").filter((line) => line !== "").map(Number);
}

test("a caller whose standard input does not end is served when it ends, and costs no other call", async () => {
  const child = Bun.spawn([`${server.bin}/bridge`], {
    env: { ...ENGINE_ENV, ...server.env, CNI_COMMAND: "ADD" },
    stdin: "pipe",
    stdout: "pipe",
  });
  child.stdin.write("{");
  child.stdin.flush();
  await until(() => busyWorkers().length === 1);
  expect(server.runPlugin("bridge")).toEqual(runPlugin("bridge"));
  child.kill("SIGTERM");
  await child.exited;
  expect(child.signalCode).toBe("SIGTERM");
  await until(isIdle);
});

test("streams that are closed or cannot be used give the same answer as without the server", () => {
  const shells = [
    "<&-",
    ">&-",
    "2>&-",
    "<&- >&-",
    "<&- >&- 2>&-",
    "</",
    ">/dev/full",
    "2>/dev/full",
    "</dev/zero",
    ">/",
  ];
  for (const redirection of shells) {
    for (const CNI_COMMAND of ["VERSION", "ADD"]) {
      const start = { env: { CNI_COMMAND }, stdin: "{", wrapper: ["sh", "-c", `exec "$@" ${redirection}`, "sh"] };
      expect({ redirection, ...server.runPlugin("bridge", start) }).toEqual({
        redirection,
        ...runPlugin("bridge", start),
      });
    }
  }
});

test("an environment that fits into no message is that of the call all the same", async () => {
  const { tooLong } = server.status().fellBack;
  const env = Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`LONG${i}`, "x".repeat(60_000)]));
  for (const count of [0, 1, 2, 3, 4, 8]) {
    const start = {
      env: { ...Object.fromEntries(Object.entries(env).slice(0, count)), CNI_COMMAND: "ADD" },
      stdin: "{",
    };
    expect(server.runPlugin("bridge", start)).toEqual(runPlugin("bridge", start));
  }
  // A packet has room for 200 KB.
  await until(() => server.status().fellBack.tooLong === tooLong + 2);
});

test("a worker that is stopped delays a call by a second at most", () => {
  for (const worker of server.status().workers) process.kill(worker.pid, "SIGSTOP");
  try {
    const startedAt = performance.now();
    expect(server.runPlugin("bridge")).toEqual(runPlugin("bridge"));
    expect(performance.now() - startedAt).toBeLessThan(5000);
  } finally {
    for (const worker of server.status().workers) process.kill(worker.pid, "SIGCONT");
  }
});
