/** Host ports of containers that the runtime knows to be gone, whatever kind of link they had. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, NetnsError, openNetns } from "../ffi/netns/netns.ts";
import macvlan from "../plugins/macvlan/plugin.ts";
import portmap from "../plugins/portmap/plugin.ts";
import ptp from "../plugins/ptp/plugin.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { newFixedIpam } from "../testing/fixed_ipam.ts";
import { runShellInNetns } from "../testing/netns.ts";
import { newRuntimeContext } from "../testing/plugin_call.ts";
import { nftListRuleset } from "../testing/ruleset.ts";
import { addNetworkList } from "./add.ts";

const { fixed } = newFixedIpam();

/** A node on which containers publish port 8080. */
function newNode() {
  const scope = new DisposableStack();
  const cacheDirectory = mkdtempSync(join(tmpdir(), "cni-takeover-"));
  scope.defer(() => rmSync(cacheDirectory, { recursive: true }));
  const host = scope.use(createNetns());
  runShellInNetns(host, "ip link set lo up; ip link add up0 up type bridge");
  /** Paths that nothing is found at. */
  const gone = new Set<string>();
  const log: string[] = [];
  const runtime = newRuntimeContext({
    host,
    cacheDirectory,
    log,
    findPlugin: (type) => [macvlan, portmap, ptp, fixed].find(({ name }) => name === type),
    openNetns(path) {
      if (gone.has(path)) throw new NetnsError(path, "there is no such file", true);
      return openNetns(path);
    },
  });
  const attach = (n: number, plugin: object) => {
    const ipam = { type: "fixed", result: { ips: [{ address: `10.9.0.${n}/24`, gateway: "10.9.0.1" }] } };
    const plugins = [{ ...plugin, ipam }, { type: "portmap", capabilities: { portMappings: true } }];
    const list = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "lan", plugins }));
    const netns = scope.use(createNetns());
    const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }];
    const capabilityArgs = { portMappings };
    addNetworkList(runtime, list, { containerId: `c${n}`, ifname: "eth0", netns: netns.path, capabilityArgs });
    return netns;
  };
  return { host, gone, log, attach, [Symbol.dispose]: () => scope.dispose() };
}

const TAKEN = 'container "c2" (network "lan", interface "eth0") has it';

test("an ADD takes a host port over from an attachment whose namespace is gone, and from no other", () => {
  using node = newNode();
  const { host, gone, log } = node;
  const attach = (n: number) => node.attach(n, { type: "macvlan", master: "up0" });
  const { path } = attach(2);
  expect(() => attach(3)).toThrow(TAKEN);
  gone.add(path);
  log.splice(0);
  attach(4);
  expect(log).toContain(
    `portmap: Withdrawing the ports of container "c2" (network "lan", interface "eth0"), which is gone: namespace "${path}" is gone`,
  );
  expect(nftListRuleset(host)).toContain("lan c4 eth0");
  expect(nftListRuleset(host)).not.toContain("lan c2 eth0");
});

test("an ADD takes no host port from a container whose host veth lives, though its path is gone", () => {
  using node = newNode();
  const first = node.attach(2, { type: "ptp" });
  node.gone.add(first.path);
  expect(() => node.attach(3, { type: "ptp" })).toThrow(TAKEN);
  runShellInNetns(first, "ip link del eth0");
  node.attach(4, { type: "ptp" });
  expect(nftListRuleset(node.host)).not.toContain("lan c2 eth0");
});
