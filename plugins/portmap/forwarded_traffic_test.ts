/** Traffic that only passes through this host, or leaves it, is nobody's published port: real TCP and UDP, over both families. */
import { expect } from "bun:test";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import { runInNetns, WITHOUT_DAD } from "../../testing/netns.ts";
import { requestTcp, requestUdp, serveTcp, serveTcpAndUdp, serveUdp } from "../../testing/traffic.ts";
import { type BridgeNetwork, bridgeNetworkTest } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import { portMappingConfig } from "../../testing/portmap.ts";

const FAR = ["203.0.113.2", "2001:db8:1::2"] as const;

/** A machine behind the host, which the machine outside and containers reach through it; it answers on the ports that are published. */
async function newFar({ host, outside }: BridgeNetwork, resources: DisposableStack): Promise<void> {
  const far = resources.use(createNetns());
  const sh = (netns: Netns, ...lines: string[]) => runInNetns(netns, "sh", "-e", "-c", lines.join("\n"));
  sh(far, WITHOUT_DAD);
  sh(
    host,
    `ip link add up1 type veth peer name eth0 netns ${far.path}; ip link set up1 up`,
    "ip addr add 203.0.113.1/24 dev up1; ip addr add 2001:db8:1::1/64 dev up1 nodad",
  );
  sh(
    far,
    "ip link set lo up; ip link set eth0 up",
    "ip addr add 203.0.113.2/24 dev eth0; ip addr add 2001:db8:1::2/64 dev eth0 nodad",
    "ip route add default via 203.0.113.1; ip route add default via 2001:db8:1::1",
  );
  sh(outside, "ip route add default via 192.0.2.1; ip route add default via 2001:db8::1");
  resources.use(serveTcp(far, "far", 8080));
  resources.use(await serveUdp(far, "far", 5353));
}

type Ask = (netns: Netns, hostname: string, port: number) => Promise<string | undefined>;

/** Asks again where nothing comes: whatever is expected here answers, on a busy machine late. */
const patiently = (ask: Ask): Ask => async (...where) =>
  await ask(...where) ?? await ask(...where) ?? await ask(...where);
const tcp = patiently((netns, hostname, port) => requestTcp(netns, hostname, port));
const udp = patiently(requestUdp);

const ports = (...hostIPs: readonly (string | undefined)[]) =>
  hostIPs.flatMap((hostIP) => [
    { hostPort: 8080, containerPort: 80, protocol: "tcp", ...hostIP === undefined ? {} : { hostIP } },
    { hostPort: 5353, containerPort: 53, protocol: "udp", ...hostIP === undefined ? {} : { hostIP } },
  ]);
/** Conditions that everybody here fulfils. */
const CONDITIONS = { conditionsV4: ["!", "-s", "9.9.9.9/32"], conditionsV6: ["!", "-s", "fd99::9/128"] };

const CONFIGS = {
  "on all addresses": portMappingConfig(ports(undefined)),
  "on all addresses, all callers hidden": portMappingConfig(ports(undefined), { masqAll: true }),
  "on all addresses, without snat": portMappingConfig(ports(undefined), { snat: false }),
  "on all addresses, with conditions": portMappingConfig(ports(undefined), CONDITIONS),
  "on an address of another machine": portMappingConfig(ports(undefined, ...FAR)),
  "on an address of another machine, with conditions": portMappingConfig(ports(undefined, ...FAR), CONDITIONS),
};

for (const [title, config] of Object.entries(CONFIGS)) {
  bridgeNetworkTest(
    `what passes through the host is not caught by ports that are published ${title}`,
    async (network) => {
      const { host, outside, call } = network;
      using resources = new DisposableStack();
      const [c1, c2] = [network.container(2), network.container(3)];
      resources.use(await serveTcpAndUdp(c1.netns, "c1"));
      await newFar(network, resources);
      call(portmap, "ADD", config, { container: c1 });
      // They are published.
      for (const address of ["192.0.2.1", "2001:db8::1", "203.0.113.1", "2001:db8:1::1"]) {
        expect(await Promise.all([tcp(outside, address, 8080), udp(outside, address, 5353)])).toEqual([
          expect.stringMatching(/^c1 /),
          expect.stringMatching(/^c1 /),
        ]);
      }
      const callers = [
        [outside, "192.0.2.2", "2001:db8::2"],
        [c1.netns, "10.88.0.2", "fd88::2"],
        [c2.netns, "10.88.0.3", "fd88::3"],
        [host, "203.0.113.1", "2001:db8:1::1"],
      ] as const;
      const answers = await Promise.all(
        callers.flatMap(([from]) => FAR.flatMap((to) => [tcp(from, to, 8080), udp(from, to, 5353)])),
      );
      expect(answers).toEqual(callers.flatMap(([, ...seen]) => seen.flatMap((each) => [`far ${each}`, `far ${each}`])));
    },
    60_000,
  );
}

bridgeNetworkTest("without the question whether a packet is for this host, they would be caught", async (network) => {
  const { host, outside, call } = network;
  using resources = new DisposableStack();
  const c1 = network.container(2);
  resources.use(await serveTcpAndUdp(c1.netns, "c1"));
  await newFar(network, resources);
  call(portmap, "ADD", CONFIGS["on all addresses"], { container: c1 });
  runInNetns(host, "nft", "flush chain inet cni prerouting; add rule inet cni prerouting jump hostports");
  expect(await tcp(outside, FAR[0], 8080)).toBe("c1 192.0.2.2");
  expect(await udp(outside, FAR[1], 5353)).toBe("c1 2001:db8::2");
});
