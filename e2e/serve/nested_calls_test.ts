/** Calls that a call makes stay in its process: a worker that waited for another worker would wait for ever. @module */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROGRAM_MARK } from "../../ffi/sys/program_mark.ts";
import { ENGINE_ENV, errorOf, type FinishedProcess, finishedProcess } from "../../testing/binary.ts";
import { addDefaultRoute, newNamespaces, runInNetns, until } from "../../testing/netns.ts";
import { type CniServer, startServer } from "../../testing/server.ts";

const PLUGINS = ["bridge", "host-local", "tuning", "portmap", "firewall"];
/** Fails when it is executed. */
const SCRIPT = "#!/bin/sh\nexit 99\n";

let server: CniServer;
let directory: string;
/** Occupies one of two workers. */
let waiting: Bun.Subprocess<"pipe", "pipe", "pipe">;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "cni-nested-"));
  server = await startServer("--workers", "2");
  waiting = Bun.spawn([join(server.bin, "bridge")], {
    env: { ...ENGINE_ENV, ...server.env, CNI_COMMAND: "ADD", CNI_CONTAINERID: "waiting" },
    stdio: ["pipe", "pipe", "pipe"],
  });
  await until(oneWorkerIsBusy);
});
afterAll(async () => {
  waiting.stdin.end();
  await waiting.exited;
  server[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

/** A directory with a file for every plugin. */
function pluginDirectory(name: string, putFile: (path: string, plugin: string) => void): string {
  const bin = join(directory, name);
  mkdirSync(bin);
  for (const plugin of PLUGINS) putFile(join(bin, plugin), plugin);
  return bin;
}

const writeProgram = (text: string) => (path: string) => writeFileSync(path, text, { mode: 0o755 });

const DIRECTORIES: Readonly<Record<string, () => string>> = {
  // Without the full binary beside them, so that they fail when they are executed and find no server.
  shims: () => pluginDirectory("shims", (path, plugin) => cpSync(join(server.bin, plugin), path)),
  "shims of another version": () => pluginDirectory("other", writeProgram(SCRIPT + PROGRAM_MARK)),
};

const oneWorkerIsBusy = () => server.status().workers.filter(({ state }) => state === "busy").length === 1;

/** Does what must be one call for the server. */
async function expectOneCall(call: () => FinishedProcess): Promise<FinishedProcess> {
  const before = server.status();
  const finished = call();
  // The worker counts the call after its end.
  await until(oneWorkerIsBusy);
  const { served, fellBack } = server.status();
  expect([served - before.served, fellBack]).toEqual([1, before.fellBack]);
  return finished;
}

function bridgeConfig(name: string, bridge: string) {
  const ipam = { type: "host-local", dataDir: join(directory, name), ranges: [[{ subnet: "10.9.0.0/24" }]] };
  return { type: "bridge", bridge, isGateway: true, ipMasq: true, ipam };
}

for (const [name, makeDirectory] of Object.entries(DIRECTORIES)) {
  test(`a chain of "cni run", delegation and clean-up with a directory of ${name} are one call each`, async () => {
    using namespaces = newNamespaces();
    const { host, container } = namespaces;
    addDefaultRoute(host);
    const bin = makeDirectory();

    const file = join(directory, `${name}.conflist`);
    const plugins = [
      bridgeConfig(`${name}-run`, "br9"),
      { type: "tuning", dataDir: join(directory, `${name}-tuning`), mtu: 1400 },
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "firewall" },
    ];
    writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
    const run = (verb: string, ...words: string[]) => {
      const options = ["--plugin-dir", bin, "--cache-dir", join(directory, `${name}-cache`)];
      const command = [join(server.bin, "cni"), "run", verb, file, ...words, ...options];
      const env = { ...ENGINE_ENV, ...server.env };
      return host.run(() => finishedProcess(Bun.spawnSync(command, { env, cwd: "/" })));
    };
    for (const verb of ["add", "check", "del"]) {
      const finished = await expectOneCall(() => run(verb, container.path, "--container-id", "c1", "-p", "8080:80"));
      expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
      expect(runInNetns(host, "nft", "list", "ruleset").includes("8080")).toBe(verb !== "del");
    }
    for (const call of [() => run("gc", "--all"), () => run("status")]) {
      expect(await expectOneCall(call)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
    }

    const config = { ...bridgeConfig(`${name}-exec`, "br10"), "cni.dev/valid-attachments": [] };
    const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", ...config });
    for (const CNI_COMMAND of ["ADD", "DEL", "GC", "STATUS"]) {
      const env = { CNI_COMMAND, CNI_CONTAINERID: "c1", CNI_NETNS: container.path, CNI_PATH: bin };
      const finished = await expectOneCall(() => host.run(() => server.runPlugin("bridge", { env, stdin })));
      expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
      if (CNI_COMMAND === "ADD") expect(JSON.parse(finished.stdout).ips[0].address).toBe("10.9.0.2/24");
    }
  });
}

test("a program without the mark is executed", async () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  const bin = pluginDirectory("foreign", writeProgram(SCRIPT));
  const env = { CNI_COMMAND: "ADD", CNI_NETNS: container.path, CNI_PATH: bin };
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", ...bridgeConfig("foreign", "br11") });
  const { msg } = errorOf(await expectOneCall(() => host.run(() => server.runPlugin("bridge", { env, stdin }))));
  expect(msg).toContain('"host-local" failed without an error object: it ended with status 99');
});
