/** The calls that have a budget: every verb of every plugin in a typical configuration, and a whole chain. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { runInNetns } from "../../../testing/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

/** A call of the program, by whichever means it is started. */
export interface MeasuredCall {
  /** What it is called as. */
  readonly name: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
  readonly host: Netns;
}

/** Makes a call, counted or not, and gives what it printed. `verb` is that of the budget. */
export type RunMeasuredCall = (verb: string, call: MeasuredCall) => string;

/** A host of its own, on which containers come and go. */
export interface CostSubject {
  /** As the budget calls it: a plugin, or `cni run`. */
  readonly name: string;
  /** One container from ADD to GC; what is to be counted goes by `counted`, the rest by `plain`. */
  round(counted: RunMeasuredCall, plain: RunMeasuredCall): void;
}

type TypicalPluginConfig = Readonly<Record<string, unknown>>;

/** How a plugin is called. */
interface TypicalConfig {
  readonly config: TypicalPluginConfig;
  /** Whether it comes after a bridge. */
  readonly chained?: boolean;
  /** The kind of link without which the kernel has nothing to attach; its VERSION and STATUS are counted anyhow. */
  readonly needs?: string;
}

const ADDRESSES = [[{ subnet: "10.66.0.0/16" }], [{ subnet: "fd66::/64" }]];
const PORTS = [{ hostPort: 20080, containerPort: 80, protocol: "tcp" }];

function typicalCalls(state: string): Readonly<Record<string, TypicalConfig>> {
  const ipam = { type: "host-local", dataDir: join(state, "networks"), ranges: ADDRESSES };
  // Where others may hold an IPv6 address, ADD waits until the kernel has asked them: by the clock, and with messages that come as they may.
  const ipv4 = { ...ipam, ranges: ADDRESSES.slice(0, 1) };
  return {
    bandwidth: { config: { ingressRate: 8e6, ingressBurst: 8e5, egressRate: 8e6, egressBurst: 8e5 }, chained: true },
    bridge: { config: { bridge: "br0", isGateway: true, ipMasq: true, hairpinMode: true, ipam } },
    dummy: { config: { ipam }, needs: "dummy" },
    firewall: { config: {}, chained: true },
    "host-device": { config: { device: "device0", ipam: ipv4 } },
    "host-local": { config: { ipam } },
    ipvlan: { config: { master: "wire0", ipam: ipv4 }, needs: "ipvlan" },
    loopback: { config: {} },
    macvlan: { config: { master: "wire0", ipam: ipv4 }, needs: "macvlan" },
    portmap: {
      config: { capabilities: { portMappings: true }, runtimeConfig: { portMappings: PORTS } },
      chained: true,
    },
    ptp: { config: { ipMasq: true, ipam } },
    sbr: { config: {}, chained: true },
    static: { config: { ipam: { type: "static", addresses: [{ address: "10.66.0.9/16" }] } } },
    tap: { config: { ipam } },
    tuning: { config: { sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" }, mtu: 1400 }, chained: true },
    vlan: { config: { master: "wire0", vlanId: 7, ipam: ipv4 }, needs: "vlan" },
    vrf: { config: { vrfname: "red" }, chained: true, needs: "vrf" },
  };
}

/** A host with a cable and a device to give away. */
function newHost(scope: DisposableStack): Netns {
  const host = scope.use(createNetns());
  for (const name of ["wire", "device"]) {
    runInNetns(host, "ip", "link", "add", `${name}0`, "type", "veth", "peer", "name", `${name}1`);
    for (const end of ["0", "1"]) runInNetns(host, "ip", "link", "set", `${name}${end}`, "up");
  }
  return host;
}

/** Whether the kernel knows this kind of link. */
function kernelHasLinkKind(kind: string): boolean {
  using host = createNetns();
  const over = ["vlan", "ipvlan", "macvlan"].includes(kind) ? ["link", "wire0"] : [];
  const linkOptions = { vlan: ["id", "7"], vrf: ["table", "7"] }[kind] ?? [];
  try {
    if (over.length > 0) runInNetns(host, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1");
    runInNetns(host, "ip", "link", "add", ...over, "name", "probe0", "type", kind, ...linkOptions);
    return true;
  } catch {
    return false;
  }
}

/** The subject for a plugin. @throws {RangeError} for a plugin that has no typical configuration yet */
export function pluginSubject(scope: DisposableStack, state: string, name: string): CostSubject {
  const typical = typicalCalls(state)[name];
  if (!typical) throw new RangeError(`Cannot measure "${name}": add a configuration to scripts/src/budget/calls.ts`);
  const { bridge } = typicalCalls(state);
  const attaches = !typical.needs || kernelHasLinkKind(typical.needs);
  const host = newHost(scope);
  let rounds = 0;
  const round = (counted: RunMeasuredCall, plain: RunMeasuredCall) => {
    const id = `container-${String(rounds++).padStart(3, "0")}`;
    const container = scope.use(createNetns());
    const call = (type: string, verb: string, config: TypicalPluginConfig): MeasuredCall => ({
      name: type,
      argv: [],
      env: {
        CNI_COMMAND: verb,
        CNI_CONTAINERID: id,
        CNI_NETNS: container.path,
        CNI_IFNAME: type === "loopback" ? "lo" : "eth0",
        CNI_PATH: "/nonexistent",
      },
      stdin: JSON.stringify({ cniVersion: "1.1.0", name: `budget-${name}`, type, ...config }),
      host,
    });
    const callOf = (verb: string, config: TypicalPluginConfig = {}) =>
      counted(verb, call(name, verb, { ...typical.config, ...config }));
    callOf("VERSION");
    callOf("STATUS");
    if (!attaches) return;
    const before = typical.chained
      ? { prevResult: JSON.parse(plain("ADD", call("bridge", "ADD", bridge.config))) }
      : {};
    const after = { prevResult: JSON.parse(callOf("ADD", before)) };
    callOf("CHECK", after);
    callOf("DEL", after);
    if (typical.chained) plain("DEL", call("bridge", "DEL", bridge.config));
    callOf("GC", { "cni.dev/valid-attachments": [] });
  };
  return { name, round };
}

/** The subject for a whole chain by one process. */
export function chainSubject(scope: DisposableStack, state: string): CostSubject {
  const { bridge, portmap, firewall, tuning } = typicalCalls(state);
  const plugins = Object.entries({ bridge, portmap, firewall, tuning }).map(([type, { config }]) => ({
    type,
    ...config,
    ...type === "portmap" ? { runtimeConfig: undefined } : {},
  }));
  const file = join(state, "chain.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "chain", plugins }));
  const host = newHost(scope);
  let rounds = 0;
  const round = (counted: RunMeasuredCall) => {
    const id = `container-${String(rounds++).padStart(3, "0")}`;
    const container = scope.use(createNetns());
    const directories = ["--cache-dir", join(state, "cache"), "--plugin-dir", join(state, "none")];
    const ports = ["--cap-args", JSON.stringify({ portMappings: PORTS })];
    const callOf = (verb: string, ...more: readonly string[]) =>
      counted(verb, {
        name: "cni",
        argv: ["run", verb.toLowerCase(), file, ...more, ...directories],
        env: {},
        stdin: "",
        host,
      });
    callOf("STATUS");
    for (const verb of ["ADD", "CHECK", "DEL"]) callOf(verb, container.path, "--container-id", id, ...ports);
    callOf("GC", "--all");
  };
  return { name: "cni run", round };
}

/** The program's sources, for those who do not start the compiled one. */
export const CLI_ENTRY = join(REPOSITORY_ROOT, "cmd/cni.ts");
