/** The networks that containers come to and leave, and the programs that do it. @module */
import { writeJsonFile } from "../harness/node.ts";

/** What is attached. */
export interface StressContainer {
  readonly id: string;
  /** Of the namespace. */
  readonly name: string;
  /** Its host port. */
  readonly port: number;
}

export type StressVerb = "add" | "del" | "check" | "gc";

/** One program to start. */
export interface StressCommand {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** Called by our own runtime, or plugin by plugin as engines do. */
export interface StressNetwork {
  readonly name: string;
  readonly invocation: "run" | "exec";
  /** How many programs a command needs. */
  readonly programCount: number;
  /**
   * The program for one of its parts.
   *
   * @param result what the plugin before answered; of other commands than ADD, what ADD answered
   * @param valid of GC
   */
  command(verb: StressVerb, part: number, container: StressContainer | undefined, call: CommandInput): StressCommand;
}

interface CommandInput {
  readonly result?: unknown;
  readonly valid?: readonly StressContainer[];
}

const PLUGIN_DIRECTORY = "/opt/cni/bin";
// Else a firewalld of the machine would be told of containers that are none of its own.
const WITHOUT_SYSTEM_BUS = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent" };

/** The chain with everything that leaves something on a node; of each family there are 125 addresses, or as many as anybody wants. */
function chainOf(number: number, isLarge: boolean) {
  const ranges = isLarge
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

export const netnsPathOf = ({ name }: StressContainer): string => `/run/netns/${name}`;

const stressPortMappings = ({ port }: StressContainer) => [{ hostPort: port, containerPort: 80, protocol: "tcp" }];

/** `cni run`: one program for the whole chain. */
export function runNetwork(cni: string, number: number, isLarge = false): StressNetwork {
  const name = `run${number}`;
  const file = `/run/${name}.conflist`;
  writeJsonFile(file, { cniVersion: "1.1.0", name, plugins: chainOf(number, isLarge) });
  return {
    ...{ name, invocation: "run", programCount: 1 },
    command(verb, _part, container, { valid = [] }) {
      const words = container
        ? [netnsPathOf(container), "--container-id", container.id]
        : valid.length > 0
        ? valid.map(({ id }) => `--valid=${id}/eth0`)
        : ["--all"];
      const capabilities = container
        ? ["--cap-args", JSON.stringify({ portMappings: stressPortMappings(container) })]
        : [];
      return { argv: [cni, "run", verb, file, ...words, ...capabilities, "--json"], env: WITHOUT_SYSTEM_BUS };
    },
  };
}

/** Links named like the plugins, one after another. */
export function execNetwork(number: number, isLarge = false): StressNetwork {
  const name = `exec${number}`;
  const chain = chainOf(number, isLarge);
  return {
    ...{ name, invocation: "exec", programCount: chain.length },
    command(verb, part, container, { result, valid = [] }) {
      const plugin = (verb === "del" ? chain.toReversed() : chain)[part]!;
      const request = {
        ...{ cniVersion: "1.1.0", name, ...plugin },
        ...(container
          ? { runtimeConfig: { portMappings: stressPortMappings(container) } }
          : { "cni.dev/valid-attachments": valid.map(({ id }) => ({ containerID: id, ifname: "eth0" })) }),
        ...(result ? { prevResult: result } : {}),
      };
      const of: Record<string, string> = container
        ? { CNI_CONTAINERID: container.id, CNI_NETNS: netnsPathOf(container), CNI_IFNAME: "eth0" }
        : {};
      const env = { ...WITHOUT_SYSTEM_BUS, CNI_COMMAND: verb.toUpperCase(), CNI_PATH: PLUGIN_DIRECTORY, ...of };
      return { argv: [`${PLUGIN_DIRECTORY}/${plugin.type}`], env, stdin: JSON.stringify(request) };
    },
  };
}
