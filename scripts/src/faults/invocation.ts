/** The two ways in which a chain of plugins is called: by our own runtime, and plugin by plugin, as container engines do. @module */
import { type Ended, run, write } from "../harness/node.ts";

/** What is attached. */
export interface Container {
  readonly id: string;
  readonly netns: string;
  /** On the host. */
  readonly port: number;
}

/** One program to start. */
export interface Command {
  /** Which one of several: the plugin. */
  readonly name: string;
  readonly argv: readonly string[];
  readonly env?: Record<string, string>;
  readonly stdin?: string;
}

export type Verb = "add" | "del" | "check" | "gc";

/** How one program is to be run instead of plainly. */
export type Wrap = (command: Command) => Ended;

/** A way to call the chain. */
export interface Way {
  /** The programs that `verb` runs, if they are several: the plugins in their order. */
  parts(verb: Verb): readonly string[];
  /**
   * Carries out a command for a container; of GC, for what stays.
   *
   * @param wrap runs the part of that name
   * @returns how it ended: as the first part that failed, or as the last
   */
  call(verb: Verb, container: Container, wrap?: { readonly part: string; readonly run: Wrap }): Ended;
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
const NAME = "faults";
const LIST = { cniVersion: "1.1.0", name: NAME, plugins: CHAIN };

const portMappings = ({ port }: Container) => [
  { hostPort: port, containerPort: 80, protocol: "tcp" },
  { hostPort: port, containerPort: 53, protocol: "udp" },
];

// Else a firewalld of the machine would be told of containers that are none of its own.
const NO_BUS = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent" };

/** `cni run`: one process for the whole chain. */
export function byRun(cni: string): Way {
  const file = "/run/faults.conflist";
  write(file, LIST);
  return {
    parts: () => ["cni"],
    call(verb, container, wrap) {
      const capabilities = JSON.stringify({ portMappings: portMappings(container) });
      const words = verb === "gc"
        ? [`--valid=${container.id}/eth0`]
        : [container.netns, "--container-id", container.id, "--cap-args", capabilities];
      const command = { name: "cni", argv: [cni, "run", verb, file, ...words, "--json"], env: NO_BUS };
      return wrap ? wrap.run(command) : run(command.argv, command);
    },
  };
}

const inOrder = (verb: Verb) => verb === "del" ? CHAIN.toReversed() : CHAIN;

/** Where the links are. */
const BIN = "/opt/cni/bin";

/** Links named like the plugins, one process after another; what ADD answered is remembered here, as engines do. */
export function byExec(): Way {
  const results = new Map<string, unknown>();
  const commandOf = (
    verb: Verb,
    container: Container,
    plugin: (typeof CHAIN)[number],
    prevResult: unknown,
  ): Command => {
    const request = {
      ...{ cniVersion: LIST.cniVersion, name: NAME, ...plugin },
      ...(verb === "gc"
        ? { "cni.dev/valid-attachments": [{ containerID: container.id, ifname: "eth0" }] }
        : { runtimeConfig: { portMappings: portMappings(container) } }),
      ...(prevResult ? { prevResult } : {}),
    };
    const of = { CNI_CONTAINERID: container.id, CNI_NETNS: container.netns, CNI_IFNAME: "eth0" };
    const env = { ...NO_BUS, CNI_COMMAND: verb.toUpperCase(), CNI_PATH: BIN, ...(verb === "gc" ? {} : of) };
    return { name: plugin.type, argv: [`${BIN}/${plugin.type}`], env, stdin: JSON.stringify(request) };
  };
  return {
    parts: (verb) => inOrder(verb).map(({ type }) => type),
    call(verb, container, wrap) {
      let last: Ended | undefined;
      let result: unknown = verb === "add" || verb === "gc" ? undefined : results.get(container.id);
      for (const plugin of inOrder(verb)) {
        const command = commandOf(verb, container, plugin, result);
        const ended = wrap?.part === plugin.type ? wrap.run(command) : run(command.argv, command);
        if (!last || last.exitCode === 0) last = { ...ended, stderr: (last?.stderr ?? "") + ended.stderr };
        // Engines end at once when an ADD or a DEL fails, and go on with a GC.
        if (ended.exitCode !== 0 && verb !== "gc") return ended;
        if (verb === "add") result = JSON.parse(ended.stdout);
      }
      if (verb === "add") results.set(container.id, result);
      if (verb === "del") results.delete(container.id);
      return verb === "add" ? { ...last!, stdout: JSON.stringify(result) } : last!;
    },
  };
}

/** Reserves addresses for a container without attaching it, or gives them back. @throws {Error} if that fails */
export function reserve(verb: "ADD" | "DEL", id: string): readonly string[] {
  const of = { CNI_CONTAINERID: id, CNI_NETNS: "/run/netns/subject", CNI_IFNAME: "eth0" };
  const stdin = JSON.stringify({ cniVersion: LIST.cniVersion, name: NAME, ipam: IPAM });
  const env = { ...of, CNI_COMMAND: verb, CNI_PATH: "/nonexistent" };
  const { exitCode, stdout } = run([`${BIN}/host-local`], { env, stdin });
  if (exitCode !== 0) throw new Error(`${verb} of an address ended with ${exitCode}: ${stdout}`);
  return verb === "DEL" ? [] : JSON.parse(stdout).ips.map(({ address }: { address: string }) => address);
}
