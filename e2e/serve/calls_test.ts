/** Calls through shims: the server answers as a process of its own would. @module */
import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runPlugin } from "../../testing/binary.ts";
import { newNamespaces, runInNetns, until } from "../../testing/netns.ts";
import { useServer } from "../../testing/used_server.ts";

const server = await useServer();

test("VERSION and errors are the same bytes as without the server", async () => {
  const before = server.status().served;
  const starts = [
    { stdin: '{"cniVersion":"1.0.0"}' },
    { env: { CNI_COMMAND: "ADD" }, stdin: "{" },
    { env: { CNI_COMMAND: "ADD" }, stdin: '{"cniVersion":"1.0.0","name":"a","type":"bridge"}' },
    { env: { CNI_COMMAND: "NOSUCH" }, stdin: "{}" },
  ];
  for (const start of starts) {
    const warm = server.runPlugin("bridge", start);
    expect(warm).toEqual(runPlugin("bridge", start));
  }
  await until(() => server.status().served - before === starts.length);
});

test("an ADD works in the namespace of its caller, and DEL removes what it made", () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  const directory = mkdtempSync(join(tmpdir(), "cni-serve-"));
  const ipam = { type: "host-local", dataDir: directory, ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const stdin = JSON.stringify({
    cniVersion: "1.0.0",
    name: "web",
    type: "bridge",
    bridge: "br9",
    isGateway: true,
    ipam,
  });
  const call = (CNI_COMMAND: string) =>
    host.run(() => server.runPlugin("bridge", { env: { CNI_COMMAND, CNI_NETNS: container.path }, stdin }));
  const added = call("ADD");
  expect(added).toMatchObject({ exitCode: 0, stderr: "" });
  expect(JSON.parse(added.stdout).ips[0].address).toBe("10.9.0.2/24");
  expect(runInNetns(host, "ip", "-o", "link")).toContain("br9");
  expect(runInNetns(container, "ip", "-o", "addr")).toContain("10.9.0.2/24");
  expect(call("DEL")).toMatchObject({ exitCode: 0, stdout: "", stderr: "" });
  expect(runInNetns(container, "ip", "-o", "link")).not.toContain("eth0");
  rmSync(directory, { recursive: true });
});

test("a worker traces the call whose caller asks, and no other", () => {
  using namespaces = newNamespaces();
  const directory = mkdtempSync(join(tmpdir(), "cni-serve-"));
  const stdin = JSON.stringify({ cniVersion: "1.0.0", name: "web", type: "bridge", bridge: "br9" });
  const call = (CNI_COMMAND: string, env: Record<string, string> = {}) =>
    namespaces.host.run(() =>
      server.runPlugin("bridge", { env: { CNI_COMMAND, CNI_NETNS: namespaces.container.path, ...env }, stdin })
    );
  const path = join(directory, "trace");
  const added = call("ADD", { CNI_TRACE: path });
  expect(JSON.parse(added.stdout).interfaces).toHaveLength(3);
  const trace = readFileSync(path, "utf8");
  expect(trace).toMatch(/^trace of bridge ADD: /);
  expect(trace).toContain("RTM_NEWLINK name=br9 ");
  for (let i = 0; i < 3; i++) expect(call("CHECK").stderr).toBe("");
  expect(call("STATUS", { CNI_TRACE: "stderr" }).stderr).toMatch(/^trace of bridge STATUS: /);
  expect(call("DEL")).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(readFileSync(path, "utf8")).toBe(trace);
  rmSync(directory, { recursive: true });
});
