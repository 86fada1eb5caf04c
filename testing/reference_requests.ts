/**
 * Requests for the reference plugin and for ours: whether both do the same with them, and whether they agree on which cannot be served.
 *
 * @module
 */
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { runIp } from "./netns.ts";
import {
  type ComparisonHost,
  newComparisonHost,
  ourPlugins,
  referencePlugins,
  snapshotHost,
} from "./reference_host.ts";
import type { JsonDocument } from "./json_document.ts";

/** A request to either side. */
export interface ComparedRequest {
  readonly config?: object;
  readonly env?: Readonly<Record<string, string | null>>;
  /** The value of CNI_COMMAND, ADD unless told. */
  readonly verb?: string;
  /** Arguments of ip(8) that run before: on the host, in the container. */
  readonly host?: readonly string[];
  readonly container?: readonly string[];
}

/** host-local with its state in {@linkcode ComparisonHost.directory}. */
export const hostLocalIpam = (more: object) => ({ type: "host-local", dataDir: "$DIR", ...more });
/** The same with an address of each subnet. */
export const hostLocalRanges = (...subnets: string[]) =>
  hostLocalIpam({ ranges: subnets.map((subnet) => [{ subnet }]) });
export const ipv4Ipam = hostLocalIpam({ subnet: "10.1.0.0/24" });
/** An address of each family. */
export const dualStackIpam = hostLocalRanges("10.1.0.0/24", "fd00:1::/64");
/** The same with what {@linkcode compareImplementations} writes into a file for the resolver. */
export const dualStackIpamWithDns = { ...dualStackIpam, resolvConf: "$DIR/resolv.conf" };
/** A `dns` with every key. */
export const dnsConfig = {
  nameservers: ["10.1.0.1"],
  domain: "a.example",
  search: ["b.example"],
  options: ["ndots:2"],
};
export const defaultRoutes = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }];
/** A range with a gateway of its own choice. */
export const rangeWithGateway = [{
  subnet: "10.1.0.0/24",
  gateway: "10.1.0.200",
  rangeStart: "10.1.0.20",
  rangeEnd: "10.1.0.30",
}];

export const configRequests = (...all: object[]) => all.map((config): ComparedRequest => ({ config }));
/** Requests with these values of `ipam`. */
export const ipamRequests = (...all: unknown[]) => configRequests(...all.map((ipam) => ({ ipam })));
/** Requests with values of a variable, `null` for its absence. */
export const envRequests = (name: string, config: object, ...all: (string | null)[]) =>
  all.map((value): ComparedRequest => ({ config, env: { [name]: value } }));

/** The links and reservations that are there. */
export const leftBehind = (world: ComparisonHost) => ({ links: world.links(), reserved: world.reserved() });

/** Has each side serve an ADD and a DEL on a host of its own. @returns what each did, for {@linkcode listDifferences} */
export function compareImplementations(type: string, { config = {}, env, host = [] }: ComparedRequest): JsonDocument[] {
  return [referencePlugins, ourPlugins].map((side) => {
    using world = newComparisonHost();
    runIp(world.host, ...host);
    writeFileSync(join(world.directory, "resolv.conf"), "nameserver 192.0.2.53\nsearch one.example\noptions edns0\n");
    const request = { type, ...config };
    const answer = world.call(side, "ADD", request, { type, env });
    // Later releases leave an empty one out, too.
    if (answer.cniVersion === "1.0.0" && Object.keys(answer.dns ?? {}).length === 0) delete answer.dns;
    // The kernel decides on the state of a link while it answers about it alone.
    runIp(world.container, "link show eth0");
    for (const { name, sandbox } of answer.interfaces ?? []) {
      if (!sandbox) runIp(world.host, `link show ${name}`);
    }
    const added = snapshotHost(world, answer);
    world.call(side, "DEL", request, { type, env });
    return { added, left: leftBehind(world) };
  });
}

/** Requests by who accepts them. */
export interface RequestsByAcceptance {
  readonly refused: readonly ComparedRequest[];
  readonly accepted: readonly ComparedRequest[];
  readonly onlyOurs: readonly ComparedRequest[];
  readonly onlyTheirs: readonly ComparedRequest[];
}

/**
 * Tests that each request is accepted by whom it should be, and that what we refuse changes nothing.
 *
 * @param define defines a test
 * @param shared a link of the host that may stay
 */
export function testRequests(
  define: (name: string, body: () => void) => void,
  type: string,
  { refused, accepted, onlyOurs, onlyTheirs }: RequestsByAcceptance,
  shared?: string,
): void {
  const judgements: [title: string, byThem: boolean, byUs: boolean, requests: readonly ComparedRequest[]][] = [
    ["both refuse", false, false, refused],
    ["both accept", true, true, accepted],
    ["only we accept", false, true, onlyOurs],
    ["only the reference accepts", true, false, onlyTheirs],
  ];
  for (const [title, byThem, byUs, requests] of judgements) {
    for (const request of requests) {
      define(`${title}: ${JSON.stringify(request)}`, () => {
        const verdicts = outcomesOf(type, request, shared);
        expect(verdicts.map(({ ok }) => ok), JSON.stringify(verdicts)).toEqual([byThem, byUs]);
      });
    }
  }
}

function outcomesOf(
  type: string,
  { verb = "ADD", config = {}, env, host = [], container = [] }: ComparedRequest,
  shared?: string,
) {
  return [referencePlugins, ourPlugins].map((side) => {
    using world = newComparisonHost();
    runIp(world.host, ...host);
    runIp(world.container, ...container);
    const hostState = () => {
      const { links, reserved } = leftBehind(world);
      return { container: links.container, host: links.host.filter((name) => name !== shared), reserved };
    };
    const before = hostState();
    const { succeeded, answer } = world.tryCall(side, verb, { type, ...config }, { type, env });
    if (side === ourPlugins && !succeeded) {
      expect([answer.code, answer.msg]).toEqual([expect.any(Number), expect.any(String)]);
      expect(hostState()).toEqual(before);
    }
    return { ok: succeeded, answer };
  });
}
