/** What engines find in their log when a configuration has keys that nobody reads. */
import { expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newNamespaces } from "../testing/netns.ts";
import { type FinishedProcess, runPlugin } from "../testing/binary.ts";

interface Node extends Disposable {
  readonly directory: string;
  call(plugin: string, command: string, config: object, pluginDirectory?: string): FinishedProcess;
}

function newNode(): Node {
  const resources = new DisposableStack();
  const { host, container } = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-keys-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  return {
    directory,
    call: (plugin, command, config, pluginDirectory = "/nonexistent") =>
      host.run(() =>
        runPlugin(plugin, {
          env: { CNI_COMMAND: command, CNI_NETNS: container.path, CNI_PATH: pluginDirectory },
          stdin: JSON.stringify({ cniVersion: "1.1.0", name: "web", type: plugin, ...config }),
        })
      ),
    [Symbol.dispose]: () => resources.dispose(),
  };
}

test("an ADD by exec says which keys nobody reads, its IPAM plugin's among them, and no other call says it", () => {
  using node = newNode();
  const ipam = { type: "host-local", ranges: [[{ subnet: "10.9.0.0/24", rangStart: "10.9.0.9" }]], note: "" };
  const known = { runtimeConfig: { portMappings: [] }, args: { cni: { labels: [] } }, deviceID: "", "x-note": 1 };
  const config = { bridge: "br9", isGatway: true, ...known, ipam: { ...ipam, dataDir: node.directory } };
  const added = node.call("bridge", "ADD", config);
  expect([added.exitCode, added.stderr]).toEqual([
    0,
    'bridge: network "web": isGatway is not read; did you mean "isGateway"?\n' +
    'bridge: network "web": ipam.ranges[0][0].rangStart is not read; did you mean "rangeStart"?\n' +
    'bridge: network "web": ipam.note is not read\n',
  ]);
  const prevResult = JSON.parse(added.stdout);
  for (const command of ["CHECK", "STATUS", "DEL", "GC"]) {
    const valid = command === "GC" ? { "cni.dev/valid-attachments": [] } : {};
    expect(node.call("bridge", command, { ...config, prevResult, ...valid })).toMatchObject({
      exitCode: 0,
      stderr: "",
    });
  }
});

test("nothing is said of keys that may be for another program", () => {
  using node = newNode();
  const reservations = join(node.directory, "reservations");
  const ipam = { type: "host-local", dataDir: reservations, ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const ofOthers = { type: "ovs", vlan_tag: 5, ipam: { ...ipam, note: "" } };
  expect(node.call("host-local", "ADD", ofOthers)).toMatchObject({
    exitCode: 0,
    stderr: 'host-local: network "web": ipam.note is not read\n',
  });
  const program = join(node.directory, "host-local");
  writeFileSync(
    program,
    `#!/bin/sh\ncat >/dev/null; echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.5/24"}]}'\n`,
  );
  chmodSync(program, 0o755);
  const bridge = { bridge: "br9", ipam: { type: "host-local", pool: "a" } };
  expect(node.call("bridge", "ADD", bridge, node.directory)).toMatchObject({ exitCode: 0, stderr: "" });
});

test("an ADD that fails says why, and nothing of keys", () => {
  using node = newNode();
  expect(node.call("bridge", "ADD", { bridge: "br9", isGatway: true, mtu: -1 })).toMatchObject({
    exitCode: 1,
    stderr: "",
  });
});
