export type NetworkPlugin = Readonly<Record<string, unknown>> & { readonly type: string };

export interface Network {
  readonly cniVersion: string;
  readonly name: string;
  readonly plugins: readonly NetworkPlugin[];
}

export interface Container {
  readonly id: string;
  readonly netns: string;
  readonly portMappings: readonly {
    readonly hostPort: number;
    readonly containerPort: number;
    readonly protocol: string;
  }[];
}

export const IFNAME = "eth0";

/** A container whose namespace has the same name, with a port published for TCP and UDP. */
export const newContainer = (id: string, hostPort: number): Container => ({
  id,
  netns: `/run/netns/${id}`,
  portMappings: [
    { hostPort, containerPort: 80, protocol: "tcp" },
    { hostPort, containerPort: 53, protocol: "udp" },
  ],
});

/** Addresses of a node, with default routes. @param ranges one of each family, with the keys of host-local */
export const hostLocal = (...ranges: readonly { readonly subnet: string; readonly rangeEnd?: string }[]) => ({
  type: "host-local",
  ranges: ranges.map((range) => [range]),
  routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }].slice(0, ranges.length),
});

export const bridgePlugin = (name: string, ipam: object) => ({
  type: "bridge",
  bridge: name,
  isGateway: true,
  ipMasq: true,
  hairpinMode: true,
  ipam,
});
export const TUNING = {
  type: "tuning",
  sysctl: { "net.ipv4.conf.IFNAME.log_martians": "1" },
  mtu: 1400,
  promisc: true,
  allmulti: true,
};
export const PORTMAP = { type: "portmap", capabilities: { portMappings: true } };
export const FIREWALL = { type: "firewall", ingressPolicy: "same-bridge" };
export const BANDWIDTH = { type: "bandwidth", ingressRate: 8e6, ingressBurst: 8e5, egressRate: 8e6, egressBurst: 8e5 };

/** A chain of all plugins that leave something behind. */
export const newChain = (name: string, first: NetworkPlugin): Network => ({
  cniVersion: "1.1.0",
  name,
  plugins: [first, TUNING, PORTMAP, FIREWALL, BANDWIDTH],
});
