/** What policy makes of a flow, by what the compiler knows. @module */
import type { Ip } from "../ffi/address.ts";
import type { PolicyDirection, PortMatch } from "../plugins/lib/policy/desired.ts";
import { portsNamed } from "./api/pod.ts";
import type { PolicyCompiler, SelectedSet } from "./compiler.ts";
import type { PeerSelector } from "./pod_peers.ts";
import { isInRanges } from "./port_ranges.ts";

type NumberMatch = Exclude<PortMatch, { readonly named: string }>;

export interface JudgedEnds {
  readonly source: Ip;
  readonly destination: Ip;
  readonly protocol: number;
  readonly port: number | undefined;
}

/** What is supposed of what is not known yet. */
export interface Supposed {
  /** Whether an address that no known pod of this node has passes its policies. */
  passes(direction: PolicyDirection, ip: Ip): boolean;
  /** Whether the selector selects an address that no known pod has. */
  isPeer(selector: PeerSelector): boolean;
}

/** Whether policy lets this node forward packets of the flow. */
export function allowsFlow(compiler: PolicyCompiler, flow: JudgedEnds, supposed: Supposed): boolean {
  const { source, destination } = flow;
  return source === destination ||
    passes(compiler, flow, "egress", source, destination, supposed) &&
      passes(compiler, flow, "ingress", destination, source, supposed);
}

function passes(
  compiler: PolicyCompiler,
  flow: JudgedEnds,
  direction: PolicyDirection,
  ip: Ip,
  peer: Ip,
  supposed: Supposed,
): boolean {
  if (!compiler.isLocal(ip)) return supposed.passes(direction, ip);
  const chain = compiler.chainOf(direction, ip);
  if (!chain) return true;
  return chain.rules.some(({ peers, ports }) =>
    (!peers || peers.some((key) => hasPeer(compiler, compiler.setOf(key), peer, supposed))) &&
    (!ports ||
      ports.some((match) =>
        "named" in match
          ? hasPort(compiler, compiler.setOf(match.named), flow, supposed)
          : match.protocol === flow.protocol && hasNumber(compiler, match, flow.port)
      ))
  );
}

function hasNumber(compiler: PolicyCompiler, match: NumberMatch, port: number | undefined): boolean {
  if ("ranges" in match) {
    const { source } = compiler.setOf(match.ranges);
    return port !== undefined && source.kind === "ranges" && isInRanges(source.ranges, port);
  }
  return match.first === undefined || port !== undefined && match.first <= port && port <= match.last!;
}

function hasPeer({ peers }: PolicyCompiler, { source, peers: selector }: SelectedSet, ip: Ip, supposed: Supposed) {
  if (source.kind === "blocks") return source.blocks.contains(ip);
  return peers.ownerOf(ip) === undefined ? supposed.isPeer(selector!) : peers.isSelected(selector!, ip);
}

function hasPort(
  { peers }: PolicyCompiler,
  { source, peers: selector }: SelectedSet,
  { destination, protocol, port }: JudgedEnds,
  supposed: Supposed,
): boolean {
  if (source.kind !== "ports") return false;
  const owner = peers.ownerOf(destination);
  if (!owner) return selector !== undefined && supposed.isPeer(selector);
  const isSelected = selector ? selector.groups.has(owner.group) : owner.isAttached;
  return isSelected &&
    portsNamed(source.names, owner.pod.ports).some((each) => each.protocol === protocol && each.port === port);
}
