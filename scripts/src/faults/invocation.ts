/** The two ways in which a chain of plugins is called: by our own runtime, and plugin by plugin, as container engines do. @module */
import { type ProgramEnd, runProgram, writeJsonFile } from "../harness/node.ts";

/** What is attached. */
export interface FaultContainer {
  readonly id: string;
  readonly netns: string;
  /** On the host. */
  readonly port: number;
}

/** One program to start. */
export interface FaultCommand {
  /** Which one of several: the plugin. */
  readonly name: string;
  readonly argv: readonly string[];
  readonly env?: Record<string, string>;
  readonly stdin?: string;
}

export type FaultVerb = "add" | "del" | "check" | "gc";

/** How one program is to be run instead of plainly. */
export type RunProgram = (command: FaultCommand) => ProgramEnd;

/** A way to call the chain. */
export interface Invocation {
  /** The programs that `verb` runs, if they are several: the plugins in their order. */
  programs(verb: FaultVerb): readonly string[];
  /**
   * Carries out a command for a container; of GC, for what stays.
   *
   * @param wrap runs the part of that name
   * @returns how it ended: as the first part that failed, or as the last
   */
  call(
    verb: FaultVerb,
    container: FaultContainer,
    wrap?: { readonly part: string; readonly run: RunProgram },
  ): ProgramEnd;
}

/** How many addresses of each family are left when one container is there: of a /29, without its ends and the bridge. */
export const FREE_ADDRESSES = 4;

const IPAM = {
  type: "host-local",
  ranges: [[{ subnet: "10.9.0.0/29" }], [{ subnet: "fd00:9::/125", rangeEnd: "fd00:9::6" }]],
  routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
};
/** The chain with everything in it that leaves something behind. */
const CHAIN = [
  { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, hairpinMode: true, ipam: IPAM },
  { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.log_martians": "1" }, mtu: 1400, promisc: true, allmulti: true },
  { type: "portmap", capabilities: { portMappings: true } },
  { type: "firewall", ingressPolicy: "same-bridge" },
  { type: "bandwidth", ingressRate: 8e6, ingressBurst: 8e5, egressRate: 8e6, egressBurst: 8e5 },
] as const;
const NETWORK_NAME = "faults";
const NETWORK_LIST = { cniVersion: "1.1.0", name: NETWORK_NAME, plugins: CHAIN };

const faultPortMappings = ({ port }: FaultContainer) => [
  { hostPort: port, containerPort: 80, protocol: "tcp" },
  { hostPort: port, containerPort: 53, protocol: "udp" },
];

// Else a firewalld of the machine would be told of containers that are none of its own.
const WITHOUT_SYSTEM_BUS = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent" };

/** `cni run`: one process for the whole chain. */
export function runInvocation(cni: string): Invocation {
  const file = "/run/faults.conflist";
  writeJsonFile(file, NETWORK_LIST);
  return {
    programs: () => ["cni"],
    call(verb, container, wrap) {
      const capabilities = JSON.stringify({ portMappings: faultPortMappings(container) });
      const words = verb === "gc"
        ? [`--valid=${container.id}/eth0`]
        : [container.netns, "--container-id", container.id, "--cap-args", capabilities];
      const command = { name: "cni", argv: [cni, "run", verb, file, ...words, "--json"], env: WITHOUT_SYSTEM_BUS };
      return wrap ? wrap.run(command) : runProgram(command.argv, command);
    },
  };
}

const chainInOrder = (verb: FaultVerb) => verb === "del" ? CHAIN.toReversed() : CHAIN;

/** Where the links are. */
const PLUGIN_DIRECTORY = "/opt/cni/bin";

/** Links named like the plugins, one process after another; what ADD answered is remembered here, as engines do. */
export function execInvocation(): Invocation {
  const results = new Map<string, unknown>();
  const commandOf = (
    verb: FaultVerb,
    container: FaultContainer,
    plugin: (typeof CHAIN)[number],
    prevResult: unknown,
  ): FaultCommand => {
    const request = {
      ...{ cniVersion: NETWORK_LIST.cniVersion, name: NETWORK_NAME, ...plugin },
      ...(verb === "gc"
        ? { "cni.dev/valid-attachments": [{ containerID: container.id, ifname: "eth0" }] }
        : { runtimeConfig: { portMappings: faultPortMappings(container) } }),
      ...(prevResult ? { prevResult } : {}),
    };
    const attachmentEnv = { CNI_CONTAINERID: container.id, CNI_NETNS: container.netns, CNI_IFNAME: "eth0" };
    const env = {
      ...WITHOUT_SYSTEM_BUS,
      CNI_COMMAND: verb.toUpperCase(),
      CNI_PATH: PLUGIN_DIRECTORY,
      ...(verb === "gc" ? {} : attachmentEnv),
    };
    return { name: plugin.type, argv: [`${PLUGIN_DIRECTORY}/${plugin.type}`], env, stdin: JSON.stringify(request) };
  };
  return {
    programs: (verb) => chainInOrder(verb).map(({ type }) => type),
    call(verb, container, wrap) {
      let last: ProgramEnd | undefined;
      let result: unknown = verb === "add" || verb === "gc" ? undefined : results.get(container.id);
      for (const plugin of chainInOrder(verb)) {
        const command = commandOf(verb, container, plugin, result);
        const programEnd = wrap?.part === plugin.type ? wrap.run(command) : runProgram(command.argv, command);
        if (!last || last.exitCode === 0) last = { ...programEnd, stderr: (last?.stderr ?? "") + programEnd.stderr };
        // Engines end at once when an ADD or a DEL fails, and go on with a GC.
        if (programEnd.exitCode !== 0 && verb !== "gc") return programEnd;
        if (verb === "add") result = JSON.parse(programEnd.stdout);
      }
      if (verb === "add") results.set(container.id, result);
      if (verb === "del") results.delete(container.id);
      return verb === "add" ? { ...last!, stdout: JSON.stringify(result) } : last!;
    },
  };
}

/** Reserves addresses for a container without attaching it, or gives them back. @throws {Error} if that fails */
export function reserveAddresses(verb: "ADD" | "DEL", id: string): readonly string[] {
  const attachmentEnv = { CNI_CONTAINERID: id, CNI_NETNS: "/run/netns/subject", CNI_IFNAME: "eth0" };
  const stdin = JSON.stringify({ cniVersion: NETWORK_LIST.cniVersion, name: NETWORK_NAME, ipam: IPAM });
  const env = { ...attachmentEnv, CNI_COMMAND: verb, CNI_PATH: "/nonexistent" };
  const { exitCode, stdout } = runProgram([`${PLUGIN_DIRECTORY}/host-local`], { env, stdin });
  if (exitCode !== 0) throw new Error(`${verb} of an address ended with ${exitCode}: ${stdout}`);
  return verb === "DEL" ? [] : JSON.parse(stdout).ips.map(({ address }: { address: string }) => address);
}
