/** What hosts of {@linkcode newHostRoot} are used for: containers are attached there, servers run. @module */
import { expect } from "bun:test";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { CONTAINER_NETNS, type HostRoot } from "./host_root.ts";
import { runInNetns, until } from "./netns.ts";

const CONFIG = JSON.stringify({
  cniVersion: "1.1.0",
  name: "lan",
  type: "bridge",
  bridge: "lan0",
  ipam: { type: "host-local", ranges: [[{ subnet: "10.97.0.0/24" }]] },
});
const METRICS = "/run/cni/metrics.sock";

/** Calls a plugin as an engine does. @returns what it prints */
export function callInRoot(
  root: HostRoot,
  plugin: string,
  command: string,
  env: Readonly<Record<string, string>> = {},
): string {
  const stdin = command === "VERSION" ? '{"cniVersion":"1.1.0"}' : CONFIG;
  const finished = root.run([plugin], { env: { CNI_COMMAND: command, ...env }, stdin });
  expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
  return finished.stdout;
}

export function succeedInRoot(root: HostRoot, ...argv: string[]): string {
  const finished = root.run(argv);
  expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
  return finished.stdout;
}

export function useNetworkInRoot(root: HostRoot, plugin: string, host: Netns): void {
  const env = { CNI_CONTAINERID: "c1", CNI_NETNS: CONTAINER_NETNS, CNI_IFNAME: "eth0" };
  expect(JSON.parse(callInRoot(root, plugin, "ADD", env)).ips).toMatchObject([
    { address: expect.stringMatching(/^10\.97\.0\.\d+\/24$/) },
  ]);
  expect(runInNetns(host, "ip", "-o", "link", "show", "master", "lan0")).toContain("veth");
  expect(callInRoot(root, plugin, "DEL", env)).toBe("");
  expect(runInNetns(host, "ip", "-o", "link", "show", "master", "lan0")).toBe("");
}

/** A worker counts a call after its answer. @param command that ends by executing the program */
export const untilServed = (root: HostRoot, command: readonly string[], count: number): Promise<void> =>
  until(() => JSON.parse(succeedInRoot(root, ...command, "serve", "--status", "--json")).served === count);

/** @param command that ends by executing the program */
export async function startServerInRoot(root: HostRoot, command: readonly string[], ...options: string[]) {
  const server = root.start([...command, "serve", "--metrics", `unix:${METRICS}`, ...options]);
  let log = "";
  const read = async () => {
    for await (const chunk of server.stderr) log += new TextDecoder().decode(chunk);
  };
  void read();
  await until(() => log.includes("Listening") || server.exitCode !== null);
  expect(log).toContain("Listening");
  return server;
}

/** Its process is confined: it may read the libraries. */
export async function untilMeasured(root: HostRoot): Promise<void> {
  const unix = join(root.directory, METRICS);
  await until(async () => {
    try {
      return (await (await fetch("http://localhost/metrics", { unix })).text()).includes("cni_calls_total");
    } catch {
      return false;
    }
  });
}
