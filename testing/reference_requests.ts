/**
 * Requests for the reference plugin and for ours: whether both do the same with them, and whether they agree on which cannot be served.
 *
 * @module
 */
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import { inNetns } from "./netns.ts";
import { type Json, newWorld, ours, picture, theirs, type World } from "./reference_host.ts";

/** What is asked of either side. */
export interface Request {
  readonly config?: object;
  readonly env?: Readonly<Record<string, string | null>>;
  /** ADD unless told. */
  readonly verb?: string;
  /** What ip(8) is told before: on the host, in the container. */
  readonly host?: readonly string[];
  readonly container?: readonly string[];
}

/** host-local with its state in the world's directory. */
export const hostLocal = (more: object) => ({ type: "host-local", dataDir: "$DIR", ...more });
/** The same with an address of each subnet. */
export const ranges = (...subnets: string[]) => hostLocal({ ranges: subnets.map((subnet) => [{ subnet }]) });
/** An IPv4 address. */
export const four = hostLocal({ subnet: "10.1.0.0/24" });
/** An address of each family. */
export const both = ranges("10.1.0.0/24", "fd00:1::/64");
/** The same with what {@linkcode compare} writes into a file for the resolver. */
export const named = { ...both, resolvConf: "$DIR/resolv.conf" };
export const dns = { nameservers: ["10.1.0.1"], domain: "a.example", search: ["b.example"], options: ["ndots:2"] };
/** Default routes. */
export const defaults = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }];
/** A range with a gateway of its own choice. */
export const narrow = [{
  subnet: "10.1.0.0/24",
  gateway: "10.1.0.200",
  rangeStart: "10.1.0.20",
  rangeEnd: "10.1.0.30",
}];

export const configs = (...all: object[]) => all.map((config): Request => ({ config }));
export const ipams = (...all: unknown[]) => configs(...all.map((ipam) => ({ ipam })));
/** Requests with values of a variable, `null` for its absence. */
export const envs = (name: string, config: object, ...all: (string | null)[]) =>
  all.map((value): Request => ({ config, env: { [name]: value } }));

/** Tells ip(8). */
export function prepare(netns: Netns, commands: readonly string[] = []): void {
  for (const each of commands) inNetns(netns, "ip", ...each.split(" "));
}

/** What is there besides the ruleset. */
export const left = (world: World) => ({ links: world.links(), reserved: world.reserved() });

/** Has each side serve an ADD and a DEL on a host of its own. @returns what each made of it, for `differences` */
export function compare(type: string, { config = {}, env, host }: Request): Json[] {
  return [theirs, ours].map((side) => {
    using world = newWorld();
    prepare(world.host, host);
    writeFileSync(join(world.directory, "resolv.conf"), "nameserver 192.0.2.53\nsearch one.example\noptions edns0\n");
    const request = { type, ...config };
    const answer = world.call(side, "ADD", request, { type, env });
    // Later releases leave an empty one out, too.
    if (answer.cniVersion === "1.0.0" && Object.keys(answer.dns ?? {}).length === 0) delete answer.dns;
    // The kernel decides on the state of a link while it answers about it alone.
    prepare(world.container, ["link show eth0"]);
    for (const { name, sandbox } of answer.interfaces ?? []) if (!sandbox) prepare(world.host, [`link show ${name}`]);
    const added = picture(world, answer);
    world.call(side, "DEL", request, { type, env });
    return { added, left: left(world) };
  });
}

/** Requests by who accepts them. */
export interface Requests {
  readonly refused: readonly Request[];
  readonly accepted: readonly Request[];
  readonly onlyOurs: readonly Request[];
  readonly onlyTheirs: readonly Request[];
}

/**
 * Tests that each request is accepted by whom it should be, and that what we refuse changes nothing.
 *
 * @param define defines a test
 * @param shared a link of the host that may stay
 */
export function judge(
  define: (name: string, body: () => void) => void,
  type: string,
  { refused, accepted, onlyOurs, onlyTheirs }: Requests,
  shared?: string,
): void {
  const judgements: [title: string, byThem: boolean, byUs: boolean, requests: readonly Request[]][] = [
    ["both refuse", false, false, refused],
    ["both accept", true, true, accepted],
    ["only we accept", false, true, onlyOurs],
    ["only the reference accepts", true, false, onlyTheirs],
  ];
  for (const [title, byThem, byUs, requests] of judgements) {
    for (const request of requests) {
      define(`${title}: ${JSON.stringify(request)}`, () => {
        const verdicts = verdictsOf(type, request, shared);
        expect(verdicts.map(({ ok }) => ok), JSON.stringify(verdicts)).toEqual([byThem, byUs]);
      });
    }
  }
}

function verdictsOf(type: string, { verb = "ADD", config = {}, env, host, container }: Request, shared?: string) {
  return [theirs, ours].map((side) => {
    using world = newWorld();
    prepare(world.host, host);
    prepare(world.container, container);
    const seen = () => {
      const { links, reserved } = left(world);
      return { container: links.container, host: links.host.filter((name) => name !== shared), reserved };
    };
    const before = seen();
    const { ok, answer } = world.ask(side, verb, { type, ...config }, { type, env });
    if (side === ours && !ok) {
      expect([answer.code, answer.msg]).toEqual([expect.any(Number), expect.any(String)]);
      expect(seen()).toEqual(before);
    }
    return { ok, answer };
  });
}
