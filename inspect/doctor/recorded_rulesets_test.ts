/** On hosts with the rulesets of other programs, what is said of the forward chains is what traffic shows. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns } from "../../ffi/netns/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { loadRecording } from "../../testing/connectivity.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../../testing/traffic.ts";
import { Runtime, withRuntimeContext } from "../../runtime/runtime.ts";
import { examineNetwork } from "./examine.ts";

beforeAll(() => loadPlugins());
const root = mkdtempSync(join(tmpdir(), "cni-doctor-"));
afterAll(() => rmSync(root, { recursive: true }));

let directories = 0;

test.each([
  ["docker", false],
  ["docker", true],
  ["ufw", false],
  ["firewalld", false],
  ["firewalld-with-container", false],
  ["kube-proxy-iptables", false],
  ["kube-proxy-nftables", false],
])("on a host with %s; firewall plugin: %p", async (recording, hasFirewall) => {
  using host = createNetns();
  using outside = createNetns();
  using container = createNetns();
  runShellInNetns(
    host,
    `ip link set lo up; ip link add up0 type veth peer name eth0 netns ${outside.path}`,
    "ip addr add 192.0.2.1/24 dev up0; ip link set up0 up; ip route add default via 192.0.2.2",
  );
  runShellInNetns(outside, "ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up");
  loadRecording(host, recording);
  const directory = join(root, String(directories++));
  const ipam = { type: "host-local", dataDir: directory, subnet: "10.66.0.0/24" };
  const network = parseNetworkConfigList(JSON.stringify({
    cniVersion: "1.1.0",
    name: "web",
    plugins: [
      { type: "bridge", bridge: "br9", isDefaultGateway: true, ipMasq: true, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
      ...hasFirewall ? [{ type: "firewall" }] : [],
    ],
  }));
  const options = { env: {}, pluginDirectories: [], cacheDirectory: directory, log: () => {} };
  const capabilityArgs = { portMappings: [{ hostPort: 8080, containerPort: 80 }] };
  const attachment = { containerId: "c1", ifname: "eth0", netns: container.path, capabilityArgs };
  host.run(() => new Runtime(options).add(network, attachment));
  using _outside = serveTcp(outside, "outside", 443);
  using _container = serveTcp(container, "container", 80);
  const { findings } = host.run(() =>
    withRuntimeContext(options, (context) => examineNetwork(context, network, { looksOnly: true }))
  );
  const drops = findings.filter(({ severity }) => severity !== "ok").map(({ check, what }) => `${check}: ${what}`);
  const says = (direction: string) =>
    !drops.some((text) => new RegExp(`^forward chains: forwarded packets .*\\b${direction}\\b.* dropped`).test(text));
  const patience = (isExpected: boolean) => isExpected ? undefined : NO_ANSWER_TIMEOUT_MS;
  const reaches = async (...request: Parameters<typeof requestTcp>) => await requestTcp(...request) !== undefined;
  const shown = {
    from: await reaches(container, "192.0.2.2", 443, patience(says("from"))),
    to: await reaches(outside, "192.0.2.1", 8080, patience(says("to"))),
  };
  expect({ from: says("from"), to: says("to") }).toEqual(shown);
  expect(drops.length).toBe(shown.from && shown.to ? 0 : 1);
});
