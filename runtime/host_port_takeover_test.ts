/** Host ports of containers that the runtime knows to be gone, whatever kind of link they had. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, NetnsError, openNetns } from "../ffi/netns.ts";
import macvlan from "../plugins/macvlan/plugin.ts";
import portmap from "../plugins/portmap/plugin.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { newFixedIpam } from "../testing/fixed_ipam.ts";
import { runShellInNetns } from "../testing/netns.ts";
import { newRuntimeContext } from "../testing/plugin_call.ts";
import { nftListRuleset } from "../testing/ruleset.ts";
import { addNetworkList } from "./add.ts";

const { fixed } = newFixedIpam();

test("an ADD takes a host port over from an attachment whose namespace is gone, and from no other", () => {
  using scope = new DisposableStack();
  const cacheDirectory = mkdtempSync(join(tmpdir(), "cni-takeover-"));
  scope.defer(() => rmSync(cacheDirectory, { recursive: true }));
  const host = scope.use(createNetns());
  runShellInNetns(host, "ip link set lo up; ip link add up0 up type bridge");
  const gone = new Set<string>();
  const log: string[] = [];
  const runtime = newRuntimeContext({
    host,
    cacheDirectory,
    log,
    findPlugin: (type) => [macvlan, portmap, fixed].find(({ name }) => name === type),
    openNetns(path) {
      if (gone.has(path)) throw new NetnsError(path, "there is no such file", true);
      return openNetns(path);
    },
  });
  const attach = (n: number) => {
    const ipam = { type: "fixed", result: { ips: [{ address: `10.9.0.${n}/24` }] } };
    const plugins = [{ type: "macvlan", master: "up0", ipam }, {
      type: "portmap",
      capabilities: { portMappings: true },
    }];
    const list = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "lan", plugins }));
    const netns = scope.use(createNetns());
    const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }];
    const capabilityArgs = { portMappings };
    addNetworkList(runtime, list, { containerId: `c${n}`, ifname: "eth0", netns: netns.path, capabilityArgs });
    return netns.path;
  };
  const first = attach(2);
  log.splice(0);
  expect(() => attach(3)).toThrow('container "c2" (network "lan", interface "eth0") has it');
  gone.add(first);
  log.splice(0);
  attach(4);
  expect(log).toContain(
    `portmap: Withdrawing the ports of container "c2" (network "lan", interface "eth0"), which is gone: namespace "${first}" is gone`,
  );
  expect(nftListRuleset(host)).toContain("lan c4 eth0");
  expect(nftListRuleset(host)).not.toContain("lan c2 eth0");
});
