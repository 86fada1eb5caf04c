/** Configurations that ADD refuses: nothing stays of the attempt, and DEL of it succeeds. */
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { netnsTest, runInNetns } from "../testing/netns.ts";
import { plugin } from "../plugins/lib/protocol/plugin.ts";
import { loadPlugins, pluginNames } from "../plugins/registry.ts";
import { anything } from "../spec/schema.ts";
import { createEntry } from "../runtime/cache.ts";
import { createHostContext } from "../runtime/host_context.ts";
import { errorOf, runPlugin } from "../testing/binary.ts";
import { newCliSandboxes } from "../testing/cli.ts";

const { root, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

/** What no plugin can use, whichever it is. */
const UNUSABLE: readonly object[] = [
  ...[[], "x", 7].map((runtimeConfig) => ({ runtimeConfig })),
  { ipam: "host-local" },
  { ipam: { type: "../host-local" } },
  { dns: "x" },
  { dns: { nameservers: "x" } },
  { capabilities: [] },
  { capabilities: { mac: "yes" } },
  { runtimeConfig: [], dns: [], capabilities: 1, ipam: [] },
];

for (const part of UNUSABLE) {
  test(`a plugin refuses ADD with ${JSON.stringify(part)}, and succeeds in DEL without it`, () => {
    const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", type: "bridge", ...part });
    expect(errorOf(runPlugin("bridge", { stdin, env: { CNI_COMMAND: "ADD" } })).code).toBe(7);
    const { exitCode, stdout, stderr } = runPlugin("bridge", { stdin, env: { CNI_COMMAND: "DEL" } });
    expect([exitCode, stdout]).toEqual([0, ""]);
    // Each of them once.
    const said = stderr.trimEnd().split("\n");
    expect(said).toHaveLength(Object.keys(part).length);
    for (const line of said) {
      expect(line).toMatch(/^bridge: Cannot use .*: (runtimeConfig|ipam|dns|capabilities)\S* must be .*; continuing/);
    }
  });
}

netnsTest("cni run add leaves nothing of a network that no plugin can use", ({ host, container }) => {
  const { run, entries } = bench(host);
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "x", plugins: [{ type: "bridge", runtimeConfig: [] }] });
  const { exitCode, stderr } = run(`add - ${container.path}`, { stdin });
  expect(exitCode).toBe(1);
  expect(stderr).toContain("runtimeConfig must be an object");
  expect(stderr).not.toContain("undoing");
  expect(entries()).toEqual([]);
});

netnsTest("cni run del removes what was remembered of such a network, also once its file is mended", ({ host }) => {
  const { run, network, conf, cache, entries } = bench(host);
  network("web");
  const broken = JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge", runtimeConfig: [] }] });
  for (const command of ["del web --container-id c1", "gc web --all"]) {
    for (const isMended of [true, false]) {
      if (!isMended) writeFileSync(join(conf, "web.conflist"), broken);
      else network("web");
      const key = { network: "web", containerId: "c1", ifname: "eth0" };
      createEntry(cache, { ...key, config: broken, args: [], capabilityArgs: {} });
      run(command);
      expect(entries()).toEqual([]);
    }
  }
});

netnsTest(
  "a plugin that gives no addresses is refused as IPAM plugin, before anything is done",
  ({ host, container }) => {
    const { run, entries, conf } = bench(host);
    const linksOf = (netns: typeof host) => runInNetns(netns, "ip", "-o", "link").match(/(?<=^\d+: )[^:@]+/gm);
    for (const type of ["bridge", "ptp", "portmap"]) {
      const plugins = [{ type: "bridge", bridge: "br9", ipam: { type } }];
      writeFileSync(join(conf, "x.conflist"), JSON.stringify({ cniVersion: "1.1.0", name: "x", plugins }));
      const message = `ipam.type must be an IPAM plugin such as "host-local": got "${type}"`;
      for (const command of [`add x ${container.path}`, "status x"]) {
        const { exitCode, stdout, stderr } = run(`${command} --json`);
        expect([exitCode, JSON.parse(stdout).code]).toEqual([1, 7]);
        expect(stderr).toContain(message);
        expect(stderr).not.toContain("undoing");
      }
      expect(entries()).toEqual([]);
      for (const command of [`del x ${container.path}`, "gc x --all"]) {
        const { exitCode, stdout, stderr } = run(command);
        expect([exitCode, stdout]).toEqual([0, ""]);
        expect(stderr).toStartWith(`bridge: Cannot use configuration: ${message}; continuing without it\n`);
      }
    }
    expect([linksOf(host), linksOf(container)]).toEqual([["lo"], ["lo"]]);
  },
);

netnsTest(
  "an ADD that a configuration keeps from working says why once, and its undo nothing",
  ({ host, container }) => {
    const { run, conf } = bench(host);
    const ipam = { type: "host-local", subnet: "10.9.0.0/24" };
    for (
      const [plugin, problem] of [
        [{ mtu: "x", ipam }, 'mtu must be a whole number from 0 to 65535: got "x"'],
        [{ ipam: { ...ipam, dataDir: 5 } }, "ipam.dataDir must be a non-empty string: got 5"],
        [{ ipam: { type: "bridge" } }, 'ipam.type must be an IPAM plugin such as "host-local": got "bridge"'],
        [{ ipam, runtimeConfig: 5 }, "runtimeConfig must be an object: got 5"],
      ] as const
    ) {
      const plugins = [{ type: "bridge", bridge: "br9", ...plugin }];
      writeFileSync(join(conf, "x.conflist"), JSON.stringify({ cniVersion: "1.1.0", name: "x", plugins }));
      const { stderr } = run(`add x ${container.path}`);
      expect(stderr.split("\n")[0]).toBe(`cni: plugin "bridge" (ADD): Cannot use network "x": ${problem}`);
      expect(stderr.split("must be")).toHaveLength(2);
    }
  },
);

test("others can leave addresses to the plugins that give them, and to those of the caller and of other programs", async () => {
  await loadPlugins();
  const fail = () => {
    throw new Error("None left");
  };
  const own = plugin({ name: "own", about: "Has none left", config: anything, add: fail, del() {}, check() {} });
  const context = createHostContext({ plugins: [own], log: () => {} });
  using _host = context.host;
  const directory = join(root, "programs");
  mkdirSync(directory);
  writeFileSync(join(directory, "program"), "#!/bin/sh\n", { mode: 0o755 });
  const isIpam = (type: string) => context.isIpam(type, [directory]);
  expect(["own", "program", ...pluginNames()].filter(isIpam)).toEqual([
    "own",
    "program",
    "dhcp",
    "host-local",
    "static",
  ]);
});
