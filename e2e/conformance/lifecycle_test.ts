import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CNI_UNDER_TEST, pluginLink, SERVER_ENV } from "../../testing/binary.ts";
import {
  BESIDE,
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
  WAITS,
  workingConfig,
} from "../../testing/conformance.ts";
import { hostLocalConfig } from "../../testing/fixture_configs.ts";

test("LIF-01 a namespace that does not exist is refused before the first plugin runs", () => {
  using node = newConformanceNode();
  const recorder = node.recorder("p");
  const list = node.file({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "p" }] });
  for (const path of ["/nonexistent", node.directory]) expect(node.run("add", list, path).exitCode).toBe(1);
  expect(recorder.env("ADD")).toBeUndefined();
  expect(node.run("add", list, node.container.path).exitCode).toBe(0);
});

test("LIF-05 commands for one container do not run in parallel", () => {
  using node = newConformanceNode();
  const { directory, container } = node;
  const list = node.file({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "p" }] });
  // A plugin that calls the runtime once more, for its own container and for another.
  const beside = (id: string) =>
    `beside ${CNI_UNDER_TEST} run del ${list} --container-id ${id} --cache-dir ${directory}/cache ` +
    `--plugin-dir ${directory}/bin; echo ${id} $? >>"$0.ended"`;
  node.program("p", `${BESIDE}\n[ "$CNI_COMMAND" != ADD ] || { ${beside("c1")}; ${beside("c2")}; echo "{}"; }`);
  expect(node.run("add", list, container.path, "--container-id", "c1").exitCode).toBe(0);
  expect(readFileSync(join(directory, "bin/p.ended"), "utf8")).toBe(`c1 ${WAITS}\nc2 0\n`);
});

test("LIF-07 plugins called at the same time for different containers do not give one address twice", async () => {
  using node = newConformanceNode();
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "net", type: "host-local", ipam: hostLocalConfig(node) });
  const children = Array.from({ length: 16 }, (_, i) =>
    Bun.spawn([pluginLink("host-local")], {
      env: { CNI_COMMAND: "ADD", CNI_CONTAINERID: `c${i}`, CNI_IFNAME: "eth0", CNI_NETNS: "/netns", ...SERVER_ENV },
      stdin: Buffer.from(stdin),
      stdout: "pipe",
    }));
  const answers = await Promise.all(children.map((child) => new Response(child.stdout).json()));
  expect(new Set(answers.map(({ ips }) => ips[0].address)).size).toBe(16);
});

test("LIF-10 state is kept by network, container and interface", () => {
  using node = newConformanceNode();
  const ipam = hostLocalConfig(node);
  const cniVersion = "0.4.0";
  type Key = readonly [network: string, containerId: string, ifname: string];
  const add = ([name, containerId, ifname]: Key) =>
    node.succeed("host-local", "ADD", { cniVersion, name, ipam }, { containerId, ifname });
  const held = ([name, containerId, ifname]: Key) =>
    node.call("host-local", "CHECK", { cniVersion, name, ipam }, { containerId, ifname }).exitCode === 0;
  const all = [["net", "c1", "eth0"], ["net", "c1", "eth1"], ["net", "c2", "eth0"], ["other", "c1", "eth0"]] as const;
  all.forEach(add);
  expect(all.map(held)).toEqual([true, true, true, true]);
  node.succeed("host-local", "DEL", { cniVersion, name: "net", ipam }, { containerId: "c1", ifname: "eth0" });
  expect(all.map(held)).toEqual([false, true, true, true]);
});

test("LIF-12 two interfaces of one container are two attachments", () => {
  using bench = newRuntimeSandbox();
  for (const ifname of ["eth0", "eth1"]) bench.add(twoPluginNetwork({ cniVersion: "1.0.0" }), { ifname });
  bench.del(twoPluginNetwork());
  bench.check(twoPluginNetwork(), { ifname: "eth1" });
  expect(bench.calls.at(-1)).toMatchObject({ command: "CHECK", env: { CNI_IFNAME: "eth1" } });
});

test("LIF-13 DEL uses the configuration of the ADD, whatever has become of it", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ cniVersion: "1.0.0", plugins: [{ type: "old", key: 1 }] }));
  bench.del(twoPluginNetwork({ cniVersion: "1.1.0", plugins: [{ type: "new" }] }));
  bench.add(twoPluginNetwork({ cniVersion: "1.0.0", plugins: [{ type: "old", key: 1 }] }));
  bench.del("web");
  for (const { type, config } of bench.calls) {
    expect([type, config]).toEqual(["old", expect.objectContaining({ cniVersion: "1.0.0", key: 1 })]);
  }
  expect(bench.takeCalls()).toEqual(["old ADD", "old DEL", "old ADD", "old DEL"]);
});

test("LIF-15 no plugin removes the namespace", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options: { ifname = "eth0" } } = workingConfig(type, node);
    const [mount, request] = [join(node.directory, "netns"), join(node.directory, "request")];
    writeFileSync(request, JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config }));
    // In a mount namespace of its own: the mount is nobody else's.
    const script = `: >${mount}; mount --bind ${node.container.path} ${mount}; ${
      pluginLink(type)
    } <${request}; stat -fc %T ${mount}`;
    const env = {
      PATH: "/usr/bin:/bin",
      CNI_COMMAND: "DEL",
      CNI_CONTAINERID: "c1",
      CNI_IFNAME: ifname,
      CNI_NETNS: mount,
      CNI_PATH: join(pluginLink("host-local"), ".."),
      ...SERVER_ENV,
    };
    const child = node.host.run(() => Bun.spawnSync(["unshare", "-m", "sh", "-ec", script], { env }));
    expect([child.stdout.toString(), child.stderr.toString()]).toEqual(["nsfs\n", ""]);
  }
});
