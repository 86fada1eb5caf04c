import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { linkNames, netnsTest, runShellInNetns } from "../../testing/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { copyHost } from "./host_copy.ts";

await loadPlugins();

interface Namespaces {
  readonly host: Netns;
  readonly container: Netns;
}

/** The links of the host's copy. */
function copiedNames(
  { host, container }: Namespaces,
  plugin: object,
  args: readonly (readonly [string, string])[] = [],
): string[] {
  const network = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [plugin] }));
  const parameters = { containerId: "c1", ifname: "eth0", netns: container.path, args };
  using copy = host.run(() => copyHost(container, { network, parameters }));
  expect(copy.notes).toEqual([]);
  return linkNames(copy.host);
}

netnsTest("the copy of a host has the links that an ADD can see", (spaces) => {
  const { host } = spaces;
  const ends = ["up0", "route0", "ptp0", "ptp1", "own0", "other0", "br0.7", "port0", "port1", "port2"];
  runShellInNetns(
    host,
    "ip link add cni0 type bridge; ip link add br0 type bridge; ip link set br0 up",
    ...ends.map((name) => `ip link add ${name} type veth peer name end-${name}; ip link set ${name} up`),
    "for port in port0 port1 port2; do ip link set $port master br0; done; ip link set port0 down",
    "ip addr add 192.0.2.2/24 dev up0; ip route add 198.51.100.0/24 dev route0",
    "ip addr add 10.1.0.1/32 dev ptp0; ip route add 10.1.0.2/32 dev ptp0; ip route add 10.1.0.3/32 dev ptp1",
    'ip link set own0 alias "cni:web c1 net1"; ip link set other0 alias "cni:web c2 net1"',
  );
  const always = ["lo", "up0", "route0", "own0"];
  expect(copiedNames(spaces, { type: "ptp" }).sort()).toEqual(always.sort());
  expect(copiedNames(spaces, { type: "bridge" }).sort()).toEqual([...always, "cni0"].sort());
  expect(copiedNames(spaces, { type: "bridge", bridge: "br0" }).sort()).toEqual(
    [...always, "br0", "br0.7", "port1"].sort(),
  );
  expect(copiedNames(spaces, { type: "macvlan", master: "port2" })).toEqual(
    expect.arrayContaining(["port2", "br0"]),
  );
  expect(copiedNames(spaces, { type: "ptp" }, [["IP", "10.1.0.3/24"]])).toContain("ptp1");
  expect(copiedNames(spaces, { type: "ptp" }, [["IP", "10.1.0.3/24"]])).not.toContain("ptp0");
});
