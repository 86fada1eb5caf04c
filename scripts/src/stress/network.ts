/** The networks that containers come to and leave, and the programs that do it. @module */
import { write } from "../harness/node.ts";

/** What is attached. */
export interface Container {
  readonly id: string;
  /** Of the namespace. */
  readonly name: string;
  /** Its host port. */
  readonly port: number;
}

export type Verb = "add" | "del" | "check" | "gc";

/** One program to start. */
export interface Command {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** Called by our own runtime, or plugin by plugin as engines do. */
export interface Network {
  readonly name: string;
  readonly way: "run" | "exec";
  /** How many programs a command needs. */
  readonly parts: number;
  /**
   * The program for one of its parts.
   *
   * @param result what the plugin before answered; of other commands than ADD, what ADD answered
   * @param valid of GC
   */
  command(verb: Verb, part: number, container: Container | undefined, call: Call): Command;
}

interface Call {
  readonly result?: unknown;
  readonly valid?: readonly Container[];
}

const BIN = "/opt/cni/bin";
// Else a firewalld of the machine would be told of containers that are none of its own.
const NO_BUS = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent" };

/** The chain with everything that leaves something on a node; of each family there are 125 addresses, or as many as anybody wants. */
function chainOf(number: number, isWide: boolean) {
  const ranges = isWide
    ? [[{ subnet: `10.${number}.0.0/20` }], [{ subnet: `fd00:${number}::/64` }]]
    : [[{ subnet: `10.${number}.0.0/25` }], [{ subnet: `fd00:${number}::/121`, rangeEnd: `fd00:${number}::7e` }]];
  const ipam = { type: "host-local", ranges, routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }] };
  return [
    { type: "bridge", bridge: `br${number}`, isGateway: true, ipMasq: true, hairpinMode: true, ipam },
    { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.log_martians": "1" }, mtu: 1400 },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall", ingressPolicy: "same-bridge" },
    { type: "bandwidth", ingressRate: 8e6, ingressBurst: 8e5, egressRate: 8e6, egressBurst: 8e5 },
  ] as const;
}

export const netnsOf = ({ name }: Container): string => `/run/netns/${name}`;

const portMappings = ({ port }: Container) => [{ hostPort: port, containerPort: 80, protocol: "tcp" }];

/** `cni run`: one program for the whole chain. */
export function byRun(cni: string, number: number, isWide = false): Network {
  const name = `run${number}`;
  const file = `/run/${name}.conflist`;
  write(file, { cniVersion: "1.1.0", name, plugins: chainOf(number, isWide) });
  return {
    ...{ name, way: "run", parts: 1 },
    command(verb, _part, container, { valid = [] }) {
      const words = container
        ? [netnsOf(container), "--container-id", container.id]
        : valid.length > 0
        ? valid.map(({ id }) => `--valid=${id}/eth0`)
        : ["--all"];
      const capabilities = container ? ["--cap-args", JSON.stringify({ portMappings: portMappings(container) })] : [];
      return { argv: [cni, "run", verb, file, ...words, ...capabilities, "--json"], env: NO_BUS };
    },
  };
}

/** Links named like the plugins, one after another. */
export function byExec(number: number, isWide = false): Network {
  const name = `exec${number}`;
  const chain = chainOf(number, isWide);
  return {
    ...{ name, way: "exec", parts: chain.length },
    command(verb, part, container, { result, valid = [] }) {
      const plugin = (verb === "del" ? chain.toReversed() : chain)[part]!;
      const request = {
        ...{ cniVersion: "1.1.0", name, ...plugin },
        ...(container
          ? { runtimeConfig: { portMappings: portMappings(container) } }
          : { "cni.dev/valid-attachments": valid.map(({ id }) => ({ containerID: id, ifname: "eth0" })) }),
        ...(result ? { prevResult: result } : {}),
      };
      const of: Record<string, string> = container
        ? { CNI_CONTAINERID: container.id, CNI_NETNS: netnsOf(container), CNI_IFNAME: "eth0" }
        : {};
      const env = { ...NO_BUS, CNI_COMMAND: verb.toUpperCase(), CNI_PATH: BIN, ...of };
      return { argv: [`${BIN}/${plugin.type}`], env, stdin: JSON.stringify(request) };
    },
  };
}
