/**
 * What a worker answers is what a process of its own answers, byte by byte, for each plugin and command. The worker counts a call after it
 * has answered.
 *
 * @module
 */
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  ENGINE_ENV,
  type FinishedProcess,
  finishedProcess,
  type ProcessStart,
  runPlugin,
} from "../../testing/binary.ts";
import {
  type ConformanceNode,
  newConformanceNode,
  SUPPORTED_PLUGINS,
  workingConfig,
} from "../../testing/conformance.ts";
import { until } from "../../testing/netns.ts";
import { useServer } from "../../testing/used_server.ts";

const server = await useServer();

type Run = (type: string, start: ProcessStart) => FinishedProcess;
const runServed: Run = (type, start) => server.runPlugin(type, start);
const runAlone: Run = (type, start) => runPlugin(type, { ...start, inOwnProcess: true });

const INPUTS = [
  ...["", "{", "[]", "null", '{"cniVersion":"9.9.9"}', '{"cniVersion":"1.1.0"}', "\0\xff"],
  '{"cniVersion":"1.1.0","name":"../net","type":"bridge"}',
  `{"cniVersion":"1.1.0","name":"net","unknown":${"[".repeat(10_000)}${"]".repeat(10_000)}}`,
];

/** Calls a plugin from its ADD to its DEL, as its fixture says. @returns what it printed, without what is random */
function liveOnce(type: string, run: Run): readonly string[] {
  using node = newConformanceNode();
  const { config, options: { ifname = "eth0" } } = workingConfig(type, node);
  let prevResult: unknown;
  const call = (CNI_COMMAND: string): string => {
    const request = { cniVersion: "1.1.0", name: "net", type, ...config, ...prevResult ? { prevResult } : {} };
    const stdin = JSON.stringify({ ...request, "cni.dev/valid-attachments": [] });
    const env = { CNI_COMMAND, CNI_CONTAINERID: "c1", CNI_IFNAME: ifname, CNI_NETNS: node.container.path };
    const finished = node.host.run(() => run(type, { env: { ...env, CNI_PATH: server.bin }, stdin }));
    if (CNI_COMMAND === "ADD" && finished.exitCode === 0) prevResult = JSON.parse(finished.stdout);
    return `${CNI_COMMAND} ${withoutRandomness(JSON.stringify(finished), node)}`;
  };
  return ["VERSION", "STATUS", "CHECK", "ADD", "CHECK", "ADD", "DEL", "CHECK", "DEL", "GC"].map(call);
}

const withoutRandomness = (text: string, { directory, container }: ConformanceNode): string =>
  text.replaceAll(directory, "DIRECTORY").replaceAll(container.path, "NETNS")
    .replace(/([0-9a-f]{2}:){5}[0-9a-f]{2}/g, "MAC").replace(/veth[0-9a-f]{8}/g, "VETH")
    .replace(/fe80::[0-9a-f:]+/g, "LINK-LOCAL");

describe.each(SUPPORTED_PLUGINS.map((type) => ({ type })))("$type", ({ type }) => {
  test("from ADD to DEL", async () => {
    const before = server.status().served;
    const served = liveOnce(type, runServed);
    expect(served.find((answer) => answer.startsWith("ADD"))).toContain('"exitCode":0');
    expect(served).toEqual(liveOnce(type, runAlone));
    await until(() => server.status().served - before === served.length);
  });

  test("bad input", async () => {
    const before = server.status().served;
    const starts = INPUTS.flatMap((stdin) =>
      ["ADD", "VERSION"].map((CNI_COMMAND) => ({ env: { CNI_COMMAND }, stdin }))
    );
    for (const start of starts) expect(runServed(type, start)).toEqual(runAlone(type, start));
    await until(() => server.status().served - before === starts.length);
  });
});

/** Paths of namespaces that lead to the caller, where descriptor 5 is the container's. */
const OWN_PATHS = [
  "/dev/fd/5",
  "/proc/self/fd/5",
  "/proc//self/fd/5",
  "//proc/self/fd/../ns/net",
  "/proc/self/ns/net",
  "/proc/thread-self/ns/net",
  "/dev//fd/5",
  "/proc/self//fd/5",
  "/dev/fd/6",
];

test.each(OWN_PATHS)("a namespace at %s is that of the caller", (path) => {
  const answers = [runServed, runAlone].map((run) => {
    using node = newConformanceNode();
    const env = { CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_NETNS: path };
    const wrapper = ["sh", "-c", `exec "$@" 5<${node.container.path}`, "sh"];
    const stdin = '{"cniVersion":"1.1.0","name":"net","type":"dummy","ipam":{}}';
    return withoutRandomness(JSON.stringify(node.host.run(() => run("loopback", { env, stdin, wrapper }))), node);
  });
  expect(answers[0]).toBe(answers[1]!);
});

test.each(OWN_PATHS)("a namespace at %s is that of the caller of cni run", (path) => {
  const answers = [`${server.bin}/cni`, `${server.bin}/cni-full`].map((program) => {
    using node = newConformanceNode();
    const directory = mkdtempSync(join(tmpdir(), "cni-own-"));
    const network = join(directory, "net.conf");
    writeFileSync(network, '{"cniVersion":"1.1.0","name":"net","type":"loopback"}');
    const run = (command: string) => {
      const words = ["run", command, network, path, "--container-id", "c1", "--cache-dir", join(directory, "cache")];
      const argv = ["sh", "-c", `exec "$@" 5<${node.container.path}`, "sh", program, ...words, "--json"];
      const start = { env: { ...ENGINE_ENV, ...server.env }, stdin: "ignore", stderr: "pipe" } as const;
      return JSON.stringify(finishedProcess(node.host.run(() => Bun.spawnSync(argv, start)))).replaceAll(directory, "");
    };
    const found = ["add", "check", "del"].map(run);
    rmSync(directory, { recursive: true });
    return found;
  });
  expect(answers[0]).toEqual(answers[1]!);
});

test("commands in a directory that was removed answer the same", () => {
  const removed = ["sh", "-c", 'cd "$(mktemp -d)" && rmdir "$PWD" && exec "$@"', "sh"];
  for (const words of [["del", "default", "nosuch"], ["add", "default", "nosuch"], ["del", "./x.conf", "nosuch"]]) {
    const answers = [`${server.bin}/cni`, `${server.bin}/cni-full`].map((program) => {
      const directories = ["--conf-dir", "/nosuch", "--cache-dir", server.bin + "-cache"];
      const argv = [...removed, program, "run", ...words, ...directories];
      return finishedProcess(Bun.spawnSync(argv, { env: { ...ENGINE_ENV, ...server.env }, stdin: "ignore" }));
    });
    expect(answers[0]).toEqual(answers[1]!);
  }
});
