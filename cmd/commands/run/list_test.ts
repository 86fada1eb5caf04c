import { afterAll, expect } from "bun:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEntry, findEntry } from "../../../runtime/cache.ts";
import { newCliSandboxes } from "../../../testing/cli.ts";
import { netnsTest, runInNetns } from "../../../testing/netns.ts";
import { runInTerminal, type TerminalOutput } from "../../../testing/terminal.ts";

const { root, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

netnsTest("cni run list shows what is attached, in a table and as JSON", ({ host, container }) => {
  const { run, command, network, conf, cache } = bench(host);
  network("web");
  network("db", "br8");
  expect(run("list")).toEqual({
    exitCode: 0,
    stdout: "NETWORK  CONTAINER  INTERFACE  STATE  ADDRESSES  NAMESPACE  REASON\n",
    stderr: "",
  });
  expect(run("list --json").stdout).toBe("[]\n");
  expect(run("list web --json")).toEqual({ exitCode: 0, stdout: "[]\n", stderr: "" });
  const unknown = run("list wbe --json");
  expect([unknown.exitCode, JSON.parse(unknown.stdout).code]).toEqual([1, 7]);
  expect(unknown.stderr).toContain('Cannot find network "wbe"');
  expect(unknown.stderr).toContain('did you mean "web"?');
  const argv = `${container.path} --container-id c1`;
  expect(run(`add web ${argv} --args IgnoreUnknown=1;K=V`).exitCode).toBe(0);
  expect(run(`add db ${argv} --ifname eth1`).exitCode).toBe(0);
  createEntry(cache, { network: "web", containerId: "c2", ifname: "eth0", config: "", args: [], capabilityArgs: {} });
  createEntry(cache, {
    ...findEntry(cache, { network: "web", containerId: "c1", ifname: "eth0" })!,
    containerId: "c3",
    netns: "/gone",
  });
  const table = run("list").stdout.replaceAll(container.path, "PATH").split("\n").map((line) => line.split(/ +/));
  expect(table).toEqual([
    ["NETWORK", "CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "NAMESPACE", "REASON"],
    ["db", "c1", "eth1", "attached", "10.9.0.2/24", "PATH", "-"],
    ["web", "c1", "eth0", "attached", "10.9.0.2/24", "PATH", "-"],
    ["web", "c2", "eth0", "unfinished", "-", "-", "-"],
    ["web", "c3", "eth0", "gone", "10.9.0.2/24", "/gone", ...'namespace "/gone" is gone'.split(" ")],
    [""],
  ]);
  const inNarrowTerminal = host.run<TerminalOutput>(() =>
    runInTerminal(command("list db"), { columns: 40, env: ["NO_COLOR=1"] })
  );
  expect(inNarrowTerminal.text.replace(container.path, "PATH")).toBe(`\
NETWORK    db
CONTAINER  c1
INTERFACE  eth1
STATE      attached
ADDRESSES  10.9.0.2/24
NAMESPACE  PATH
`);
  const listed = run("list db --json");
  expect([listed.exitCode, listed.stderr]).toEqual([0, ""]);
  expect(JSON.parse(listed.stdout)).toMatchObject([{
    network: "db",
    containerId: "c1",
    ifname: "eth1",
    state: "attached",
    netns: container.path,
    args: [],
    capabilityArgs: {},
    result: { cniVersion: "1.1.0", ips: [{ address: "10.9.0.2/24" }] },
  }]);
  expect(
    JSON.parse(run(`list ${conf}/web.conflist --json`).stdout).map(({ containerId }: { containerId: string }) =>
      containerId
    ),
  )
    .toEqual(["c1", "c2", "c3"]);
});

netnsTest(
  "cni run list and restore tell a missing interface, missing addresses and rules apart",
  ({ host, container }) => {
    const { run, network, conf } = bench(host);
    network("web");
    const file = join(conf, "web.conflist");
    const { plugins: [bridge], ...list } = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify({ ...list, plugins: [{ ...bridge, ipMasq: true }] }));
    const state = (stdout: string) => {
      const document = JSON.parse(stdout);
      const [{ state, reason }] = document.attachments ?? document;
      return reason === undefined ? [state] : [state, reason];
    };
    const states = () => {
      const restored = run("restore");
      return { list: state(run("list --json").stdout), restore: state(restored.stdout), exitCode: restored.exitCode };
    };
    expect(run(`add web ${container.path}`).exitCode).toBe(0);
    expect(states()).toEqual({ list: ["attached"], restore: ["whole"], exitCode: 0 });
    runInNetns(host, "nft", "flush", "ruleset");
    expect(states()).toEqual({ list: ["attached"], restore: ["restored"], exitCode: 0 });
    runInNetns(container, "ip", "addr", "del", "10.9.0.2/24", "dev", "eth0");
    runInNetns(host, "nft", "flush", "ruleset");
    const withoutAddress = ["incomplete", "address 10.9.0.2/24 is missing"];
    expect(states()).toEqual({ list: withoutAddress, restore: withoutAddress, exitCode: 0 });
    expect(runInNetns(host, "nft", "list", "ruleset")).toContain("10.9.0.2");
    runInNetns(container, "ip", "link", "del", "eth0");
    const withoutLink = [
      "incomplete",
      expect.stringMatching(/^interface "veth\w+" is missing, interface "eth0" is missing$/),
    ];
    expect(states()).toEqual({ list: withoutLink, restore: withoutLink, exitCode: 0 });
    expect(run("list").stdout).toMatch(/ incomplete +10.9.0.2\/24 .* interface "eth0" is missing\n$/);
    expect(run("restore").stderr).toMatch(
      /^cni: Only a DEL and an ADD complete "eth0" of .* interface "eth0" is missing\n$/,
    );
  },
);
