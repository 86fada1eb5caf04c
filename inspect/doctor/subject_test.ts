import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns } from "../../ffi/netns/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { Runtime, withRuntimeContext } from "../../runtime/runtime.ts";
import { lookUpSubject } from "./subject.ts";

test("many containers need few open files", async () => {
  await loadPlugins();
  using resources = new DisposableStack();
  const root = mkdtempSync(join(tmpdir(), "cni-subject-"));
  resources.defer(() => rmSync(root, { recursive: true }));
  const ipam = { type: "host-local", subnet: "10.9.0.0/28", dataDir: join(root, "networks") };
  const network = parseNetworkConfigList(
    JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge", bridge: "br9", ipam }] }),
  );
  const options = { env: {}, pluginDirectories: [], cacheDirectory: root, log: () => {} };
  const [host, ...containers] = Array.from({ length: 9 }, () => resources.use(createNetns()));
  const countOpenFiles = () => readdirSync("/proc/self/fd").length;
  const openFiles = host!.run<number>(() => {
    const runtime = new Runtime(options);
    containers.forEach(({ path }, i) => runtime.add(network, { containerId: `c${i}`, ifname: "eth0", netns: path }));
    return withRuntimeContext(options, (context) => {
      using opened = new DisposableStack();
      const before = countOpenFiles();
      const subject = lookUpSubject(context, network, undefined, opened);
      const identities = subject.containers.map(({ state }) => state.netns.identity);
      expect(identities.toSorted()).toEqual(containers.map(({ identity }) => identity).toSorted());
      for (const { state } of subject.containers) expect(state.sysctl("net/ipv4/ip_forward")).toMatch(/^[01]$/);
      return countOpenFiles() - before;
    });
  });
  expect(openFiles).toBeLessThan(containers.length);
});
