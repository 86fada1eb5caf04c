/**
 * A container behind a host's firewall, attached by one side's `bridge`, `portmap` and `firewall`, and who reaches whom.
 *
 * ```
 * outside 192.0.2.2, 2001:db8::2 ── up0 host 192.0.2.1, 2001:db8::1 ── cni0 ── container 10.1.0.2, fd01::2
 * ```
 *
 * The machine outside knows the way to the container, so that only rules keep it away.
 *
 * @module
 */
import { readdirSync } from "node:fs";
import { extname, join, parse } from "node:path";
import { fileURLToPath } from "node:url";
import type { Netns } from "../ffi/netns/netns.ts";
import { runInNetns, runShellInNetns, WITHOUT_BRIDGE_NETFILTER, WITHOUT_DAD } from "./netns.ts";
import { connectOutside } from "./outside.ts";
import { newComparisonHost, type PluginSet } from "./reference_host.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcpAndUdp } from "./traffic.ts";

const SHELL_FUNCTIONS = `both() { iptables "$@"; ip6tables "$@"; }\n`;
const RECORDINGS = join(fileURLToPath(import.meta.url), "../../testdata/rulesets");

/** The direction: from the container to the machine outside, from there to the container, or from there to a published port. */
const DIRECTIONS = ["out", "in", "published"] as const;
/** Every kind of traffic, as words: `out tcp 4`. */
const FLOWS = DIRECTIONS.flatMap((direction) =>
  ["tcp", "udp"].flatMap((protocol) => ["4", "6"].map((family) => `${direction} ${protocol} ${family}`))
);
/** The flows that have all words of one of the descriptions, which commas separate: `in, published udp 6`. Nothing is none of them. */
export function flowsOf(descriptions: string): string[] {
  const wanted = descriptions.split(",").map((each) => each.trim()).filter((each) => each !== "");
  return FLOWS.filter((flow) =>
    wanted.some((each) => each === "all" || each.split(" ").every((word) => flow.split(" ").includes(word)))
  );
}

/** All flows except those of the given descriptions. */
export const without = (descriptions: string): string[] =>
  FLOWS.filter((flow) => !flowsOf(descriptions).includes(flow));

const TARGETS = {
  out: { 4: ["192.0.2.2"], 6: ["2001:db8::2"] },
  in: { 4: ["10.1.0.2"], 6: ["fd01::2"] },
  published: { 4: ["192.0.2.1"], 6: ["2001:db8::1"] },
};

const only = (subnet: string, address: string) => ({ subnet, rangeStart: address, rangeEnd: address });
const BRIDGE = {
  type: "bridge",
  bridge: "cni0",
  isGateway: true,
  ipMasq: true,
  ipam: {
    type: "host-local",
    dataDir: "$DIR",
    ranges: [[only("10.1.0.0/24", "10.1.0.2")], [only("fd01::/64", "fd01::2")]],
    routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
  },
};
const PORTMAP = {
  type: "portmap",
  runtimeConfig: {
    portMappings: [
      { hostPort: 8080, containerPort: 80, protocol: "tcp" },
      { hostPort: 5353, containerPort: 53, protocol: "udp" },
    ],
  },
};

/** A container that was attached. */
export interface AttachedContainer {
  check(): void;
  del(): void;
}

/** A host with a container to be. */
export interface ConnectivityHost extends Disposable {
  readonly host: Netns;
  readonly container: Netns;
  readonly outside: Netns;
  /** Runs lines of the shell on the host, in which `both …` stands for iptables and ip6tables. */
  shell(script: string): string;
  /** Has one side ADD the container. */
  attach(side: PluginSet): AttachedContainer;
  /**
   * What the flows that get through are answered: who is there, and whom it sees calling.
   *
   * @param cut those that are expected not to, as for {@linkcode flowsOf}, for which nobody waits long
   */
  reached(cut: string): Promise<Record<string, string>>;
}

/**
 * Loads a recording of testdata/rulesets.
 *
 * @param place of iptables' rules: alone, behind those that are there, or before them
 */
export function loadRecording(host: Netns, recording: string, place: "alone" | "behind" | "before" = "alone"): void {
  const files = readdirSync(RECORDINGS).filter((file) => parse(file).name === recording);
  if (files.length === 0) throw new Error(`No recording "${recording}" in ${RECORDINGS}`);
  for (const file of files) {
    const path = join(RECORDINGS, file);
    const kind = extname(file).slice(1);
    if (kind === "nft") runInNetns(host, "nft", "-f", path);
    else if (place === "alone") runInNetns(host, `${kind}-restore`, path);
    else {
      const edit = place === "before" ? "s/^-A (INPUT|FORWARD|OUTPUT|PREROUTING|POSTROUTING) /-I \\1 /" : "";
      runShellInNetns(host, `sed -E "${edit}" ${path} | ${kind}-restore --noflush`);
    }
  }
}

export interface ConnectivityOptions {
  /** Further keys of the firewall plugin's configuration. */
  readonly firewall?: object;
  /** Further variables of the plugins. */
  readonly env?: Readonly<Record<string, string>>;
}

export async function newConnectivityHost(
  { firewall, env = {} }: ConnectivityOptions = {},
): Promise<ConnectivityHost> {
  using building = new DisposableStack();
  const world = building.use(newComparisonHost());
  const { host, container } = world;
  const outside = building.adopt(world.newContainer(), () => {});
  runShellInNetns(
    host,
    WITHOUT_BRIDGE_NETFILTER,
    "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
  );
  connectOutside(host, outside);
  runShellInNetns(outside, "ip route add 10.1.0.0/24 via 192.0.2.1; ip route add fd01::/64 via 2001:db8::1");
  runShellInNetns(container, WITHOUT_DAD);
  building.use(await serveTcpAndUdp(outside, "outside"));
  building.use(await serveTcpAndUdp(container, "container"));
  const plugins: { type: string; [key: string]: unknown }[] = [BRIDGE, PORTMAP, { type: "firewall", ...firewall }];
  const resources = building.move();
  return {
    host,
    container,
    outside,
    shell: (script) => runShellInNetns(host, SHELL_FUNCTIONS + script),
    attach(side) {
      let prevResult: unknown;
      const call = (verb: string, plugin: { type: string }) =>
        world.call(side, verb, { ...plugin, ...prevResult !== undefined && { prevResult } }, {
          type: plugin.type,
          env,
        });
      for (const plugin of plugins) prevResult = call("ADD", plugin);
      return {
        check: () => plugins.forEach((plugin) => call("CHECK", plugin)),
        del: () => plugins.toReversed().forEach((plugin) => call("DEL", plugin)),
      };
    },
    async reached(cut) {
      const cutFlows = flowsOf(cut);
      const answers = await Promise.all(FLOWS.map(async (flow) => {
        const [direction, protocol, family] = flow.split(" ") as ["out" | "in" | "published", "tcp" | "udp", 4 | 6];
        const patienceMs = cutFlows.includes(flow) ? NO_ANSWER_TIMEOUT_MS : undefined;
        const [address] = TARGETS[direction][family] as [string];
        const [from, name] = direction === "out" ? [container, "outside"] : [outside, "container"];
        const answer = protocol === "tcp"
          ? await requestTcp(from, address, direction === "published" ? 8080 : 80, patienceMs)
          : await requestUdp(from, address, direction === "published" ? 5353 : 53, patienceMs);
        return answer?.startsWith(`${name} `) ? [[flow, answer]] : [];
      }));
      return Object.fromEntries(answers.flat());
    },
    [Symbol.dispose]: () => resources.dispose(),
  };
}
